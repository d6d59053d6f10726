import pytest
import torch
from kernels.slots import key_slot, poisoned, poisoned_outcome, poisoned_pass, random_slots

from specbench.kernels.commit import COMMITTED, NEW_N
from specbench.kernels.tree_draft_rows import (
    tree_first_rows,
    tree_first_rows_ref,
    tree_first_rows_triton,
    tree_level_rows,
    tree_level_rows_ref,
    tree_level_rows_triton,
)


@pytest.mark.parametrize("num_decodes", [0, 1, 4, 60])
@pytest.mark.parametrize("op", [tree_first_rows_ref, tree_first_rows_triton, tree_first_rows])
def test_first_pass_runs_over_the_path(op, num_decodes, device):
    """Prompt chunks behind the decodes are not touched; rows at the buffer's end get a valid id."""
    width, num_nodes, num_requests = 4, 9, num_decodes + 2
    slots = random_slots(seed=num_decodes, depth=num_nodes, device=device, length=30)
    slots.tokens_SL[0, 5] = -1
    generator = torch.Generator().manual_seed(num_decodes)
    slot_of = [i % 7 for i in range(num_requests)]
    outcome = poisoned_outcome(num_requests, width, device, of_trees=True)
    path = outcome.path_BW.copy_(torch.randint(0, num_nodes, (num_requests, width), generator=generator))
    before = [(3 * i) % 29 for i in range(num_requests)]
    outcome.status_BX[:, COMMITTED] = torch.randint(0, width + 1, (num_requests,), generator=generator)
    outcome.status_BX[:, NEW_N] = outcome.status_BX[:, COMMITTED] + torch.tensor(before, device=device)
    rows = num_decodes * width
    out = poisoned_pass(rows, num_decodes, device)
    feature_row = poisoned(rows, dtype=torch.int64, device=device)
    op(out, feature_row, outcome, torch.tensor(slot_of, device=device), slots, num_nodes)
    ids, position, kv_slot = (t.tolist() for t in (out.ids_T, out.position_T, out.kv_slot_T))
    for b in range(num_decodes):
        assert int(out.kv_len_B[b]) == before[b] + width
        for j in range(width):
            at, row = before[b] + j, b * width + j
            token = int(slots.tokens_SL[slot_of[b], min(at + 1, 29)])
            expected = (max(token, 0), at, key_slot(slots, slot_of[b], at), b * num_nodes + int(path[b, j]))
            assert (ids[row], position[row], kv_slot[row], int(feature_row[row])) == expected


@pytest.mark.parametrize("num_requests", [1, 5, 50])
@pytest.mark.parametrize("topk", [1, 3, 8])
@pytest.mark.parametrize("level", [2, 3, 5])
@pytest.mark.parametrize("op", [tree_level_rows_ref, tree_level_rows_triton, tree_level_rows])
def test_levels_share_a_position_and_have_slots_of_their_own(op, level, topk, num_requests, device):
    slots = random_slots(seed=level, depth=20, device=device)
    slot_of = [i % 7 for i in range(num_requests)]
    out = poisoned_pass(num_requests * topk, num_requests, device)
    op(out, torch.tensor(slot_of, device=device), slots, topk, level)
    for b, slot in enumerate(slot_of):
        n = int(slots.n_S[slot])
        assert int(out.kv_len_B[b]) == n + (level - 1) * topk
        for j in range(topk):
            row = b * topk + j
            assert int(out.position_T[row]) == n + level - 2
            assert int(out.kv_slot_T[row]) == key_slot(slots, slot, n + (level - 2) * topk + j)
