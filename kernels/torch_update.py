"""The state update of engines like vLLM 0.9.2: many small torch operations in place of fused kernels.

The sequence is that of its proposer (v1/spec_decode/eagle.py, `propose`) and of its rejection bookkeeping: casts, +=,
compares, masked fills, gathers, divisions and copies, each a separate launch, on persistent outputs.
"""

import math

from torch import Tensor

from specbench.kernels.accept_chain import accept_chain_ref
from specbench.kernels.accept_tree import accept_tree_ref
from specbench.kernels.decode_rows import prepare_rows_ref
from specbench.kernels.draft_rows import draft_first_ids_ref, draft_next_rows_ref, draft_pair_rows_ref
from specbench.kernels.one_pass_rows import draft_one_pass_rows_ref
from specbench.kernels.state_update import StateUpdate
from specbench.kernels.tree_rows import prepare_tree_rows_ref


class TorchStateUpdate(StateUpdate):
    """The references on any device; fused kernels write the same values in one launch each."""

    name = "torch"

    prepare_rows = staticmethod(prepare_rows_ref)
    accept_chain = staticmethod(accept_chain_ref)
    prepare_tree_rows = staticmethod(prepare_tree_rows_ref)
    accept_tree = staticmethod(accept_tree_ref)
    draft_first_ids = staticmethod(draft_first_ids_ref)
    draft_next_rows = staticmethod(draft_next_rows_ref)
    draft_pair_rows = staticmethod(draft_pair_rows_ref)
    draft_one_pass_rows = staticmethod(draft_one_pass_rows_ref)

    @staticmethod
    def store_draft(logits_BV: Tensor, d2t_V: Tensor | None, slot_B: Tensor, step: int, drafts_SK: Tensor) -> None:
        """Not the reference, whose argmax in two steps is for CPUs."""
        assert 1 <= step <= drafts_SK.shape[1], f"step {step} is outside 1..{drafts_SK.shape[1]}"
        # NaN counts as -inf in every sampler of the engine; argmax alone would choose it.
        ids_B = logits_BV.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf).argmax(dim=1)
        if d2t_V is not None:
            ids_B = ids_B + d2t_V.index_select(0, ids_B)
        drafts_SK.select(1, step - 1).index_copy_(0, slot_B, ids_B)
