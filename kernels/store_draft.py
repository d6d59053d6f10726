"""The drafter's greedy choice, mapped to the target's vocabulary and written to its slot.

Legend: B requests, V the drafter's vocabulary, S slots, K draft depth.
"""

from torch import Tensor

from specbench.kernels.sample import argmax_parts, argmax_ref, best_of_parts
from specbench.kernels.triton_support import dispatch, early_launch, tl, triton, wait_for_inputs


def store_draft_ref(logits_BV: Tensor, d2t_V: Tensor | None, slot_B: Tensor, step: int, drafts_SK: Tensor) -> None:
    """drafts_SK[slot_B, step - 1] = argmax of each row, for the draft number `step` (1..K).

    `d2t_V` (int64, EAGLE-3's reduced vocabulary) is what to add to a drafter's id to get the target's.
    """
    assert 1 <= step <= drafts_SK.shape[1], f"step {step} is outside 1..{drafts_SK.shape[1]}"
    ids_B = argmax_ref(logits_BV)
    drafts_SK[slot_B, step - 1] = ids_B if d2t_V is None else ids_B + d2t_V[ids_B]


def store_draft_triton(logits_BV: Tensor, d2t_V: Tensor | None, slot_B: Tensor, step: int, drafts_SK: Tensor) -> None:
    assert 1 <= step <= drafts_SK.shape[1], f"step {step} is outside 1..{drafts_SK.shape[1]}"
    num_requests = logits_BV.shape[0]
    if num_requests == 0:
        return
    best_BN, index_BN = argmax_parts(logits_BV, None)
    parts = best_BN.shape[1]
    _store_draft_kernel[(num_requests,)](
        best_BN,
        index_BN,
        d2t_V,
        slot_B,
        drafts_SK,
        drafts_SK.stride(0),
        step - 1,
        parts,
        BLOCK_N=triton.next_power_of_2(parts),
        num_warps=1,
        **early_launch(logits_BV),
    )


store_draft = dispatch(store_draft_ref, store_draft_triton)


@triton.jit
def _store_draft_kernel(
    best_ptr,
    index_ptr,
    d2t_ptr,
    slot_ptr,
    drafts_ptr,
    stride_drafts,
    column,
    parts,
    BLOCK_N: tl.constexpr,
    EARLY: tl.constexpr,
):
    wait_for_inputs(EARLY)
    request = tl.program_id(0).to(tl.int64)
    token = best_of_parts(best_ptr, index_ptr, request, parts, BLOCK_N)
    if d2t_ptr is not None:
        token += tl.load(d2t_ptr + token).to(tl.int64)
    slot = tl.load(slot_ptr + request).to(tl.int64)
    tl.store(drafts_ptr + slot * stride_drafts + column, token)
