import pytest
import torch
from kernels.slots import random_slots

from specbench.kernels.tree_draft_rows import (
    tree_first_rows,
    tree_first_rows_ref,
    tree_first_rows_triton,
    tree_level_rows,
    tree_level_rows_ref,
    tree_level_rows_triton,
)

POISON = -77


def poisoned(size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.full((size,), POISON, dtype=dtype, device=device)


def key_slot(slots, slot: int, position: int) -> int:
    page = int(slots.block_table_SP[slot, position // slots.page_size])
    return page * slots.page_size + position % slots.page_size


@pytest.mark.parametrize("num_decodes", [0, 1, 4, 60])
@pytest.mark.parametrize("op", [tree_first_rows_ref, tree_first_rows_triton, tree_first_rows])
def test_first_pass_runs_over_the_path(op, num_decodes, device):
    """Prompt chunks behind the decodes are not touched; rows at the buffer's end get a valid id."""
    width, num_nodes, num_requests = 4, 9, num_decodes + 2
    slots = random_slots(seed=num_decodes, depth=num_nodes, device=device, length=30)
    slots.tokens_SL[0, 5] = -1
    generator = torch.Generator().manual_seed(num_decodes)
    slot_of = [i % 7 for i in range(num_requests)]
    path = torch.randint(0, num_nodes, (num_requests, width), generator=generator).to(device)
    status = torch.full((num_requests, 6 + width), POISON, dtype=torch.int32, device=device)
    before = [(3 * i) % 29 for i in range(num_requests)]
    status[:, 1] = torch.randint(0, width + 1, (num_requests,), generator=generator)
    status[:, 3] = status[:, 1] + torch.tensor(before, device=device)
    rows = num_decodes * width
    outs = [poisoned(rows, torch.int64, device) for _ in range(3)]
    kv_len, feature_row = poisoned(num_decodes, torch.int32, device), poisoned(rows, torch.int64, device)
    slot_B = torch.tensor(slot_of, device=device)
    table = (slots.block_table_SP, slots.page_size)
    op(path, status, slot_B, slots.tokens_SL, *table, num_nodes, *outs, kv_len, feature_row)
    ids, position, kv_slot = (t.tolist() for t in outs)
    for b in range(num_decodes):
        assert int(kv_len[b]) == before[b] + width
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
    position, kv_slot = (poisoned(num_requests * topk, torch.int64, device) for _ in range(2))
    kv_len = poisoned(num_requests, torch.int32, device)
    slot_B = torch.tensor(slot_of, device=device)
    op(level, slot_B, slots.n_S, slots.block_table_SP, slots.page_size, topk, position, kv_slot, kv_len)
    for b, slot in enumerate(slot_of):
        n = int(slots.n_S[slot])
        assert int(kv_len[b]) == n + (level - 1) * topk
        for j in range(topk):
            row = b * topk + j
            assert int(position[row]) == n + level - 2
            assert int(kv_slot[row]) == key_slot(slots, slot, n + (level - 2) * topk + j)
