"""Random round states for the tests of the bookkeeping kernels, and buffers full of poison for them to fill."""

from __future__ import annotations

from dataclasses import fields

import torch
from torch import Tensor

from specbench.kernels.buffers import Outcome, PassRows, Rows, Slots

POISON = -77


def random_slots(
    *,
    seed: int,
    depth: int,
    device: torch.device,
    num_slots: int = 7,
    length: int = 40,
    page_size: int = 4,
    stops: int = 3,
) -> Slots:
    """S slots, the last one the dummy; prompts and outputs filled to n + 1 tokens.

    A small vocabulary (0..5), so that drafts match, stop ids occur and n-grams repeat.
    """
    generator = torch.Generator().manual_seed(seed)

    def randint(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    pages = -(-(length + 2 * depth + 2) // page_size)
    table = torch.randperm(num_slots * pages, generator=generator).view(num_slots, pages).int() + 1
    slots = Slots(
        n_S=randint(0, length - depth - 2, num_slots).int(),
        tokens_SL=randint(0, 6, num_slots, length),
        limit_S=torch.full((num_slots,), length, dtype=torch.int32),
        stop_SE=torch.where(randint(0, 2, num_slots, stops) == 0, -1, randint(4, 6, num_slots, stops)),
        done_S=torch.zeros(num_slots, dtype=torch.int32),
        drafts_SK=randint(-1, 6, num_slots, depth),
        block_table_SP=table,
        page_size=page_size,
    )
    near = slots.n_S + 1 + randint(0, depth + 2, num_slots).int()
    slots.limit_S = torch.where(randint(0, 2, num_slots) == 0, near, slots.limit_S)
    slots.n_S[-1], slots.done_S[-1], slots.block_table_SP[-1] = 0, 1, 0
    for name, tensor in tensors(slots).items():
        setattr(slots, name, tensor.to(device))
    return slots


def key_slot(slots: Slots, slot: int, position: int) -> int:
    page = int(slots.block_table_SP[slot, position // slots.page_size])
    return page * slots.page_size + position % slots.page_size


def poisoned(*shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.full(shape, POISON, dtype=dtype, device=device)


def poisoned_pass(num_rows: int, num_requests: int, device: torch.device) -> PassRows:
    ids_T, position_T, kv_slot_T = (poisoned(num_rows, dtype=torch.int64, device=device) for _ in range(3))
    kv_len_B = poisoned(num_requests, dtype=torch.int32, device=device)
    return PassRows(ids_T=ids_T, position_T=position_T, kv_slot_T=kv_slot_T, kv_len_B=kv_len_B)


def poisoned_outcome(num_requests: int, width: int, device: torch.device, *, of_trees: bool = False) -> Outcome:
    return Outcome(
        status_BX=poisoned(num_requests, 6 + width, dtype=torch.int32, device=device),
        sample_row_B=poisoned(num_requests, dtype=torch.int64, device=device),
        path_BW=poisoned(num_requests, width, dtype=torch.int64, device=device) if of_trees else None,
    )


def rows_of(
    slots: Slots, slot_of: list[int], lengths: list[int], num_drafts: list[int], base_row: list[int] | None = None
) -> Rows:
    """The layout of a step whose requests bring `lengths` rows each; a mask for the decodes where slots have trees."""
    device, requests = slots.n_S.device, len(slot_of)
    offsets = [(request, offset) for request, length in enumerate(lengths) for offset in range(length)]
    out, num_decodes = poisoned_pass(len(offsets), requests, device), sum(d > 0 for d in num_drafts)

    def sent(values: list[int], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    return Rows(
        **tensors(out),
        slot_B=sent(slot_of, torch.int64),
        row_req_T=sent([request for request, _ in offsets], torch.int64),
        row_off_T=sent([offset for _, offset in offsets], torch.int32),
        num_drafts_B=sent(num_drafts, torch.int32),
        q_len_B=sent(lengths, torch.int32),
        base_row_B=sent(base_row or [10 * request for request in range(requests)], torch.int64),
        block_table_BP=poisoned(requests, slots.block_table_SP.shape[1], dtype=torch.int32, device=device),
        tree_mask_BDD=None
        if slots.tree is None
        else torch.zeros_like(slots.tree.mask_SDD[:1]).repeat(num_decodes, 1, 1),
    )


def tensors(buffers: Slots | PassRows | Outcome | Tensor) -> dict[str, Tensor]:
    """Their tensors by name; a slot's tree aside, which no operation on slots writes."""
    if isinstance(buffers, Tensor):
        return {"": buffers}
    named = {field.name: getattr(buffers, field.name) for field in fields(buffers)}
    return {name: value for name, value in named.items() if isinstance(value, Tensor)}


def assert_same_bits(actual: Slots | PassRows | Outcome | Tensor, expected: object, what: str = "") -> None:
    theirs = tensors(expected)  # type: ignore[arg-type]
    assert tensors(actual).keys() == theirs.keys()
    for name, tensor in tensors(actual).items():
        assert tensor.dtype == theirs[name].dtype and torch.equal(tensor, theirs[name]), (what, name)
