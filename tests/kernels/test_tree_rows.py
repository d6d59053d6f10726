import pytest
import torch
from kernels.slots import random_slots, rows_of
from kernels.trees import random_trees

from specbench.kernels.decode_rows import prepare_rows_ref
from specbench.kernels.tree_rows import prepare_tree_rows, prepare_tree_rows_ref, prepare_tree_rows_triton

# (slots, rows of each prompt chunk behind them): decode rounds with dummies, mixed steps, prompts alone.
STEPS = {"one": ([2], []), "padded": ([0, 3, 6, 6], []), "mixed": ([1, 4, 5, 0], [9, 1]), "prompts": ([2, 5], [20, 3])}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("size", [2, 7, 20])
@pytest.mark.parametrize("op", [prepare_tree_rows_ref, prepare_tree_rows_triton, prepare_tree_rows])
def test_nodes_stand_at_their_depth_and_see_their_ancestors(op, size, step, device):
    slots = random_slots(seed=size, depth=size - 1, device=device, length=160)
    slots.tree = trees = random_trees(seed=size, num_slots=7, size=size, depth=4, drafts_SK=slots.drafts_SK)
    slot_of, chunks = STEPS[step]
    num_decodes = len(slot_of) - len(chunks)
    lengths = [size] * num_decodes + chunks
    num_drafts = [size - 1] * num_decodes + [0, -1][: len(chunks)]
    rows, as_chain = (rows_of(slots, slot_of, lengths, num_drafts) for _ in range(2))
    op(rows, slots)
    prepare_rows_ref(as_chain, slots)
    for name in ("ids_T", "kv_slot_T", "kv_len_B", "block_table_BP"):  # all but the positions
        assert torch.equal(getattr(rows, name), getattr(as_chain, name)), name
    position = rows.position_T.tolist()
    offsets = [(request, offset) for request, length in enumerate(lengths) for offset in range(length)]
    for row, (request, offset) in enumerate(offsets):
        depth = int(trees.depth_SD[slot_of[request], offset]) if request < num_decodes else offset
        assert position[row] == int(slots.n_S[slot_of[request]]) + depth
    mask = rows.tree_mask_BDD
    assert torch.equal(mask, trees.mask_SDD[rows.slot_B[:num_decodes]])
    assert bool(mask.diagonal(dim1=1, dim2=2).all()), "every row, a missing node's too, must see itself"
