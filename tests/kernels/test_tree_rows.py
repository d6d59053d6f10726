import pytest
import torch
from kernels.slots import random_slots
from kernels.trees import random_trees

from specbench.kernels.decode_rows import prepare_rows_ref
from specbench.kernels.tree_rows import prepare_tree_rows, prepare_tree_rows_ref, prepare_tree_rows_triton

POISON = -77


# (slots, rows of each prompt chunk behind them): decode rounds with dummies, mixed steps, prompts alone.
STEPS = {"one": ([2], []), "padded": ([0, 3, 6, 6], []), "mixed": ([1, 4, 5, 0], [9, 1]), "prompts": ([2, 5], [20, 3])}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("size", [2, 7, 20])
@pytest.mark.parametrize("op", [prepare_tree_rows_ref, prepare_tree_rows_triton, prepare_tree_rows])
def test_nodes_stand_at_their_depth_and_see_their_ancestors(op, size, step, device):
    slots = random_slots(seed=size, depth=size - 1, device=device, length=160)
    trees = random_trees(seed=size, num_slots=7, size=size, depth=4, drafts_SK=slots.drafts_SK)
    slot_of, chunks = STEPS[step]
    num_decodes = len(slot_of) - len(chunks)
    lengths = [size] * num_decodes + chunks
    rows = [(request, offset) for request, length in enumerate(lengths) for offset in range(length)]
    num_drafts = [size - 1] * num_decodes + [0, -1][: len(chunks)]
    slot_B, row_req_T, row_off_T, num_drafts_B, q_len_B = (
        torch.tensor(t, device=device) for t in (slot_of, *zip(*rows, strict=True), num_drafts, lengths)
    )
    inputs = (slot_B, row_req_T, row_off_T.int(), num_drafts_B.int(), q_len_B.int())
    state = (slots.n_S, slots.tokens_SL, slots.drafts_SK)
    table = (slots.block_table_SP, slots.page_size)

    def outputs():
        shapes = [(len(rows),)] * 3 + [(len(slot_of),), (len(slot_of), slots.block_table_SP.shape[1])]
        dtypes = [torch.int64] * 3 + [torch.int32] * 2
        return [torch.full(s, POISON, dtype=t, device=device) for s, t in zip(shapes, dtypes, strict=True)]

    out, as_chain = outputs(), outputs()
    mask = torch.zeros(num_decodes, size, size, dtype=torch.bool, device=device)
    op(*inputs, *state, trees.depth_SD, trees.mask_SDD, *table, *out, mask)
    prepare_rows_ref(*inputs, *state, *table, *as_chain)
    for index in (0, 2, 3, 4):  # all but the positions
        assert torch.equal(out[index], as_chain[index]), index
    position = out[1].tolist()
    for row, (request, offset) in enumerate(rows):
        depth = int(trees.depth_SD[slot_of[request], offset]) if request < num_decodes else offset
        assert position[row] == int(slots.n_S[slot_of[request]]) + depth
    assert torch.equal(mask, trees.mask_SDD[slot_B[:num_decodes]])
    assert bool(mask.diagonal(dim1=1, dim2=2).all()), "every row, a missing node's too, must see itself"
