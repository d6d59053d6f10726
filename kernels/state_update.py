"""How a round advances its state between forward passes: one object, so that a row of a table can differ in it alone.

`FusedStateUpdate` runs one kernel for each operation; `TorchStateUpdate` (vllm_092.py) runs the references: the many
small torch operations that such kernels replace. Both write the same values, bit for bit. A CUDA graph may capture
either: nothing here reads a value back, and no shape depends on one.
Arguments, shapes and meaning: the functions of the same names in decode_rows.py, accept_chain.py, draft_rows.py,
store_draft.py, tree_rows.py and accept_tree.py.
"""

from typing import Protocol

from torch import Tensor

from specbench.kernels.accept_chain import accept_chain
from specbench.kernels.accept_tree import accept_tree
from specbench.kernels.buffers import Outcome, PassRows, Rows, Slots
from specbench.kernels.decode_rows import prepare_rows
from specbench.kernels.draft_rows import draft_first_ids, draft_next_rows, draft_pair_rows
from specbench.kernels.store_draft import store_draft
from specbench.kernels.tree_rows import prepare_tree_rows


class StateUpdate(Protocol):
    """The operations of a round that are neither a forward pass nor sampling."""

    name: str

    def prepare_rows(self, rows: Rows, slots: Slots, /) -> None:
        """The inputs of the target's pass."""
        ...

    def accept_chain(
        self, sampled_BQ: Tensor, rows: Rows, slots: Slots, outcome: Outcome, forced_B: Tensor | None, /
    ) -> None:
        """Accepts, commits and reports one round."""
        ...

    def prepare_tree_rows(self, rows: Rows, slots: Slots, /) -> None:
        """The inputs of the target's pass over trees."""
        ...

    def accept_tree(
        self, sampled_BD: Tensor, rows: Rows, slots: Slots, outcome: Outcome, forced_B: Tensor | None, /
    ) -> None:
        """Accepts, commits and reports one round of trees."""
        ...

    def draft_first_ids(
        self, slot_B: Tensor, row_req_T: Tensor, position_T: Tensor, tokens_SL: Tensor, ids_T: Tensor, /
    ) -> None:
        """The token after each row's position."""
        ...

    def draft_next_rows(self, out: PassRows, slot_B: Tensor, slots: Slots, step: int, shift: int = 0, /) -> None:
        """The inputs of a later drafter pass."""
        ...

    def draft_pair_rows(self, out: PassRows, slot_B: Tensor, slots: Slots, /) -> None:
        """The inputs of a draft model's first pass, two rows a request."""
        ...

    def store_draft(
        self, logits_BV: Tensor, d2t_V: Tensor | None, slot_B: Tensor, step: int, drafts_SK: Tensor, /
    ) -> None:
        """The drafter's greedy choice, into its slot."""
        ...


class FusedStateUpdate:
    """One kernel an operation: Triton on a GPU, the plain references elsewhere."""

    name = "fused"

    prepare_rows = staticmethod(prepare_rows)
    accept_chain = staticmethod(accept_chain)
    prepare_tree_rows = staticmethod(prepare_tree_rows)
    accept_tree = staticmethod(accept_tree)
    draft_first_ids = staticmethod(draft_first_ids)
    draft_next_rows = staticmethod(draft_next_rows)
    draft_pair_rows = staticmethod(draft_pair_rows)
    store_draft = staticmethod(store_draft)
