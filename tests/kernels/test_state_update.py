"""Conformance 51: the fused kernels and the sequence of torch operations write the same bits to the same tensors."""

from types import SimpleNamespace

import pytest
import torch
from kernels.slots import Slots, random_slots
from torch import Tensor

from specbench.kernels import accept_chain, decode_rows, draft_rows, store_draft
from specbench.kernels.state_update import FusedStateUpdate, TorchStateUpdate

POISON = -77
OPERATIONS = (
    (decode_rows, "prepare_rows"),
    (accept_chain, "accept_chain"),
    (draft_rows, "draft_first_ids"),
    (draft_rows, "draft_next_rows"),
    (draft_rows, "draft_pair_rows"),
    (store_draft, "store_draft"),
)
REFERENCE = SimpleNamespace(**{name: getattr(module, f"{name}_ref") for module, name in OPERATIONS})
TRITON = SimpleNamespace(**{name: getattr(module, f"{name}_triton") for module, name in OPERATIONS})


@pytest.fixture(params=["ref", "triton", "fused"])
def fused(request):
    return {"ref": REFERENCE, "triton": TRITON, "fused": FusedStateUpdate()}[request.param]


def poisoned(*shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.full(shape, POISON, dtype=dtype, device=device)


class Sides:
    """The same operation on two copies of everything, compared tensor by tensor."""

    def __init__(self, slots: Slots):
        self.slots = slots, slots.copy()

    def run(self, updates, name, arguments, outputs) -> None:
        """`arguments(slots, outs)` gives the call's; `outputs` are poisoned and may come back in any state but equal"""
        both = []
        for update, slots in zip(updates, self.slots, strict=True):
            outs = [out.clone() for out in outputs]
            getattr(update, name)(*arguments(slots, outs))
            both.append(outs)
        for a, b in zip(*both, strict=True):
            assert a.dtype == b.dtype and torch.equal(a, b), name
        for field in Slots.__slots__:
            if field != "page_size":
                a, b = (getattr(slots, field) for slots in self.slots)
                assert a.dtype == b.dtype and torch.equal(a, b), (name, field)


def random_round(seed: int, depth: int, device: torch.device, state_dtype: torch.dtype) -> tuple[Slots, dict]:
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
    rows = [(r, j) for r, q in enumerate(lengths) for j in range(q)]
    drafts = slots.drafts_SK.cpu()[slot_of]
    sampled = torch.randint(0, 6, (8, depth + 1), generator=generator)
    likely = (torch.rand(8, depth, generator=generator) < 0.8) & (drafts >= 0)
    sampled[:, :depth] = torch.where(likely, drafts, sampled[:, :depth])
    int32 = dict(dtype=torch.int32, device=device)
    inputs = dict(
        slot_B=torch.tensor(slot_of, device=device),
        row_req_T=torch.tensor([r for r, _ in rows], device=device),
        row_off_T=torch.tensor([j for _, j in rows], **int32),
        num_drafts_B=torch.tensor(num_drafts, **int32),
        q_len_B=torch.tensor(lengths, **int32),
        base_row_B=torch.arange(8, device=device) * 10,
        sampled_BQ=sampled.to(device),
        forced_B=torch.randint(0, depth + 2, (8,), generator=generator).to(**int32),
    )
    return slots, inputs


@pytest.mark.parametrize("state_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("out_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("depth", [0, 1, 4])
def test_c51_target_rows(fused, depth, out_dtype, state_dtype, device):
    for seed in range(6):
        slots, i = random_round(seed, depth, device, state_dtype)
        rows, pages = len(i["row_req_T"]), slots.block_table_SP.shape[1]
        Sides(slots).run(
            (fused, TorchStateUpdate()),
            "prepare_rows",
            lambda s, outs, i=i: (
                *(i[name] for name in ("slot_B", "row_req_T", "row_off_T", "num_drafts_B", "q_len_B")),
                *(s.n_S, s.tokens_SL, s.drafts_SK, s.block_table_SP, s.page_size),
                *outs,
            ),
            [
                poisoned(rows, dtype=out_dtype, device=device),
                poisoned(rows, dtype=out_dtype, device=device),
                poisoned(rows, dtype=torch.int64, device=device),
                poisoned(8, dtype=torch.int32, device=device),
                poisoned(8, pages, dtype=torch.int32, device=device),
            ],
        )


@pytest.mark.parametrize("state_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("is_forced", [False, True])
@pytest.mark.parametrize("depth", [0, 1, 4])
def test_c51_acceptance(fused, depth, is_forced, state_dtype, device):
    for seed in range(12):
        slots, i = random_round(seed, depth, device, state_dtype)
        if seed == 11:
            slots.stop_SE = slots.stop_SE[:, :0]
        Sides(slots).run(
            (fused, TorchStateUpdate()),
            "accept_chain",
            lambda s, outs, i=i: (
                *(i[name] for name in ("sampled_BQ", "slot_B", "num_drafts_B", "base_row_B")),
                i["forced_B"] if is_forced else None,
                *(s.n_S, s.tokens_SL, s.limit_S, s.stop_SE, s.done_S, s.drafts_SK),
                *outs,
            ),
            [
                poisoned(8, 7 + depth, dtype=torch.int32, device=device),
                poisoned(8, dtype=torch.int64, device=device),
            ],
        )


@pytest.mark.parametrize("out_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("state_dtype", [torch.int32, torch.int64])
def test_c51_drafter_rows(fused, out_dtype, state_dtype, device):
    for seed in range(6):
        slots, i = random_round(seed, 4, device, state_dtype)
        slots.tokens_SL[2, 5] = -1
        rows = len(i["row_req_T"])
        position_T = torch.randint(0, slots.tokens_SL.shape[1] + 4, (rows,), device=device).to(out_dtype)

        def outs(count, pages=8):
            out = [poisoned(count, dtype=out_dtype, device=device) for _ in range(2)]
            return [
                *out,
                poisoned(count, dtype=torch.int64, device=device),
                poisoned(8, dtype=torch.int32, device=device),
            ]

        both = (fused, TorchStateUpdate())
        Sides(slots).run(
            both,
            "draft_first_ids",
            lambda s, out, i=i, at=position_T: (i["slot_B"], i["row_req_T"], at, s.tokens_SL, *out),
            outs(rows)[:1],
        )
        for step, shift in ((2, 0), (4, 0), (2, 1), (4, 1)):
            Sides(slots).run(
                both,
                "draft_next_rows",
                lambda s, out, i=i, step=step, shift=shift: (
                    *(step, i["slot_B"], s.n_S, s.drafts_SK, s.block_table_SP, s.page_size),
                    *(*out, shift),
                ),
                outs(8),
            )
        Sides(slots).run(
            both,
            "draft_pair_rows",
            lambda s, out, i=i: (i["slot_B"], s.n_S, s.tokens_SL, s.block_table_SP, s.page_size, *out),
            outs(16),
        )


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
        Sides(random_slots(seed=step, depth=3, device=device)).run(
            (fused, TorchStateUpdate()),
            "store_draft",
            lambda s, outs, step=step: (logits.to(device), d2t, slot_B, step, s.drafts_SK),
            [],
        )


def test_c51_positions_behind_the_table_lie_in_the_dummy_page(device):
    """The references raise there; kernels and the torch sequence must not fault in a captured round."""
    slots = random_slots(seed=3, depth=4, device=device)
    slots.n_S[2] = slots.block_table_SP.shape[1] * slots.page_size - 1
    slot_B = torch.tensor([2, 0], device=device)
    outs = [poisoned(2, dtype=torch.int64, device=device) for _ in range(3)]
    outs.append(poisoned(2, dtype=torch.int32, device=device))
    Sides(slots).run(
        (TRITON, TorchStateUpdate()),
        "draft_next_rows",
        lambda s, out: (3, slot_B, s.n_S, s.drafts_SK, s.block_table_SP, s.page_size, *out),
        outs,
    )
