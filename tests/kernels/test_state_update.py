"""Conformance 51: the fused kernels and the sequence of torch operations write the same bits to the same tensors."""

from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch
from kernels.slots import assert_same_bits, poisoned, poisoned_outcome, poisoned_pass, random_slots, rows_of

from specbench.kernels import accept_chain, decode_rows, draft_rows, one_pass_rows, store_draft
from specbench.kernels.buffers import PassRows, Rows, Slots
from specbench.kernels.state_update import StateUpdate
from specbench.kernels.torch_update import TorchStateUpdate

OPERATIONS = (
    (decode_rows, "prepare_rows"),
    (accept_chain, "accept_chain"),
    (draft_rows, "draft_first_ids"),
    (draft_rows, "draft_next_rows"),
    (draft_rows, "draft_pair_rows"),
    (one_pass_rows, "draft_one_pass_rows"),
    (store_draft, "store_draft"),
)
REFERENCE = SimpleNamespace(**{name: getattr(module, f"{name}_ref") for module, name in OPERATIONS})
TRITON = SimpleNamespace(**{name: getattr(module, f"{name}_triton") for module, name in OPERATIONS})


@pytest.fixture(params=["triton", "fused"])
def fused(request):
    """`ref` by name alone: all but one of the references are the torch operations themselves."""
    return {"ref": REFERENCE, "triton": TRITON, "fused": StateUpdate()}[request.param]


def run_on_both(updates, slots: Slots, name: str, arguments, *outputs) -> None:
    """The same operation on two copies of everything, compared tensor by tensor.

    `arguments(slots, *outputs)` gives the call's; outputs are poisoned and may come back in any state but equal.
    """
    both = []
    for update in updates:
        filled = deepcopy((slots, *outputs))
        getattr(update, name)(*arguments(*filled))
        both.append(filled)
    for a, b in zip(*both, strict=True):
        assert_same_bits(a, b, name)


def random_round(seed: int, depth: int, device: torch.device, state_dtype: torch.dtype) -> tuple[Slots, Rows, dict]:
    """Requests in slots 0..5 in random order, one of them done, and two padding rows of the dummy slot."""
    generator = torch.Generator().manual_seed(seed)
    slots = random_slots(seed=seed, depth=depth, device=device)
    # The last slot in use stands at the end of the buffer: its drafts lie behind it.
    slots.n_S[4], slots.limit_S[4] = slots.tokens_SL.shape[1] - 2, slots.tokens_SL.shape[1]
    slots.n_S, slots.done_S = slots.n_S.to(state_dtype), slots.done_S.to(state_dtype)
    slots.limit_S = slots.limit_S.to(state_dtype)
    slot_of = torch.randperm(6, generator=generator).tolist() + [6, 6]
    slots.done_S[slot_of[3]] = 2
    num_drafts = [depth, depth, 0, depth, depth, -1, depth, depth]
    lengths = [depth + 1, depth + 1, 5, depth + 1, depth + 1, 3, depth + 1, depth + 1]
    n_of = slots.n_S.cpu()[slot_of].tolist()
    width = slots.tokens_SL.shape[1]
    lengths = [q if d > 0 else min(q, width - n) for q, d, n in zip(lengths, num_drafts, n_of, strict=True)]
    drafts = slots.drafts_SK.cpu()[slot_of]
    sampled = torch.randint(0, 6, (8, depth + 1), generator=generator)
    likely = (torch.rand(8, depth, generator=generator) < 0.8) & (drafts >= 0)
    sampled[:, :depth] = torch.where(likely, drafts, sampled[:, :depth])
    forced_B = torch.randint(0, depth + 2, (8,), generator=generator).to(device, torch.int32)
    tokens = dict(sampled_BQ=sampled.to(device), forced_B=forced_B)
    return slots, rows_of(slots, slot_of, lengths, num_drafts), tokens


def as_type(rows: PassRows, dtype: torch.dtype) -> PassRows:
    """The same rows with ids and positions of another type."""
    rows.ids_T, rows.position_T = rows.ids_T.to(dtype), rows.position_T.to(dtype)
    return rows


@pytest.mark.parametrize("state_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("out_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("depth", [0, 1, 4])
def test_c51_target_rows(fused, depth, out_dtype, state_dtype, device):
    for seed in range(6):
        slots, rows, _ = random_round(seed, depth, device, state_dtype)
        both = (fused, TorchStateUpdate())
        run_on_both(both, slots, "prepare_rows", lambda slots, rows: (rows, slots), as_type(rows, out_dtype))


@pytest.mark.parametrize("state_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("is_forced", [False, True])
@pytest.mark.parametrize("depth", [0, 1, 4])
def test_c51_acceptance(fused, depth, is_forced, state_dtype, device):
    for seed in range(12):
        slots, rows, tokens = random_round(seed, depth, device, state_dtype)
        if seed == 11:
            slots.stop_SE = slots.stop_SE[:, :0]
        sampled_BQ, forced_B = tokens["sampled_BQ"], tokens["forced_B"] if is_forced else None
        run_on_both(
            (fused, TorchStateUpdate()),
            slots,
            "accept_chain",
            lambda slots, outcome, rows=rows, y=sampled_BQ, forced=forced_B: (y, rows, slots, outcome, forced),
            poisoned_outcome(8, depth + 1, device),
        )


@pytest.mark.parametrize("out_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("state_dtype", [torch.int32, torch.int64])
def test_c51_drafter_rows(fused, out_dtype, state_dtype, device):
    for seed in range(6):
        slots, rows, _ = random_round(seed, 4, device, state_dtype)
        slots.tokens_SL[2, 5] = -1
        num_rows = len(rows.row_req_T)
        position_T = torch.randint(0, slots.tokens_SL.shape[1] + 4, (num_rows,), device=device).to(out_dtype)
        both = (fused, TorchStateUpdate())
        run_on_both(
            both,
            slots,
            "draft_first_ids",
            lambda s, ids_T, rows=rows, at=position_T: (rows.slot_B, rows.row_req_T, at, s.tokens_SL, ids_T),
            poisoned(num_rows, dtype=out_dtype, device=device),
        )
        for step, shift in ((2, 0), (4, 0), (2, 1), (4, 1)):
            run_on_both(
                both,
                slots,
                "draft_next_rows",
                lambda s, out, rows=rows, step=step, shift=shift: (out, rows.slot_B, s, step, shift),
                as_type(poisoned_pass(8, 8, device), out_dtype),
            )
        run_on_both(
            both,
            slots,
            "draft_pair_rows",
            lambda s, out, rows=rows: (out, rows.slot_B, s),
            as_type(poisoned_pass(16, 8, device), out_dtype),
        )


@pytest.mark.parametrize("fused", ["ref", "triton", "fused"], indirect=True)
@pytest.mark.parametrize("is_mapped", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab", [5, 320])
def test_c51_stored_drafts(fused, vocab, dtype, is_mapped, device):
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randint(-3, 4, (6, vocab), generator=generator).to(dtype)  # ties everywhere
    logits[0, :3] = torch.tensor([float("nan"), float("inf"), float("-inf")])
    logits[1] = float("-inf")
    logits[2] = float("nan")
    d2t = torch.randint(0, 50, (vocab,), generator=generator).to(device) if is_mapped else None
    slot_B = torch.tensor([5, 0, 2, 6, 1, 3], device=device)
    for step in (1, 3):
        run_on_both(
            (fused, TorchStateUpdate()),
            random_slots(seed=step, depth=3, device=device),
            "store_draft",
            lambda s, step=step: (logits.to(device), d2t, slot_B, step, s.drafts_SK),
        )


def test_c51_positions_behind_the_table_lie_in_the_dummy_page(device):
    """A captured round must not fault there."""
    slots = random_slots(seed=3, depth=4, device=device)
    slots.n_S[2] = slots.block_table_SP.shape[1] * slots.page_size - 1
    slot_B = torch.tensor([2, 0], device=device)
    run_on_both(
        (TRITON, TorchStateUpdate()),
        slots,
        "draft_next_rows",
        lambda s, out: (out, slot_B, s, 3),
        poisoned_pass(2, 2, device),
    )
