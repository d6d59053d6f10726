"""How a round advances its state between forward passes: one object, so that two arms can differ in it alone.

`StateUpdate` runs one kernel for each operation; `TorchStateUpdate` (torch_update.py) runs the references: the many
small torch operations that such kernels replace. Both write the same values, bit for bit. A CUDA graph may capture
either: nothing here reads a value back, and no shape depends on one.
Arguments, shapes and meaning: the functions of the same names in decode_rows.py, accept_chain.py, draft_rows.py,
one_pass_rows.py, store_draft.py, tree_rows.py and accept_tree.py.
"""

from specbench.kernels.accept_chain import accept_chain
from specbench.kernels.accept_tree import accept_tree
from specbench.kernels.decode_rows import prepare_rows
from specbench.kernels.draft_rows import draft_first_ids, draft_next_rows, draft_pair_rows
from specbench.kernels.one_pass_rows import draft_one_pass_rows
from specbench.kernels.store_draft import store_draft
from specbench.kernels.tree_rows import prepare_tree_rows


class StateUpdate:
    """The operations of a round that are neither a forward pass nor sampling.

    Here one kernel each: Triton on a GPU, the plain references elsewhere. Another way of them is a subclass.
    """

    name = "fused"

    prepare_rows = staticmethod(prepare_rows)
    accept_chain = staticmethod(accept_chain)
    prepare_tree_rows = staticmethod(prepare_tree_rows)
    accept_tree = staticmethod(accept_tree)
    draft_first_ids = staticmethod(draft_first_ids)
    draft_next_rows = staticmethod(draft_next_rows)
    draft_pair_rows = staticmethod(draft_pair_rows)
    draft_one_pass_rows = staticmethod(draft_one_pass_rows)
    store_draft = staticmethod(store_draft)
