from copy import deepcopy

import pytest
import torch
from kernels.slots import assert_same_bits, key_slot, poisoned, poisoned_outcome, poisoned_pass, random_slots, rows_of

from specbench.kernels.decode_rows import prepare_rows, prepare_rows_ref, prepare_rows_triton
from specbench.kernels.draft_rows import (
    draft_first_ids,
    draft_first_ids_ref,
    draft_first_ids_triton,
    draft_next_rows,
    draft_next_rows_ref,
    draft_next_rows_triton,
    draft_pair_rows,
    draft_pair_rows_ref,
    draft_pair_rows_triton,
)
from specbench.kernels.one_pass_rows import (
    draft_one_pass_rows,
    draft_one_pass_rows_ref,
    draft_one_pass_rows_triton,
)

# Decode rounds (uniform, dummies as padding), prompt chunks (last and earlier), both together, over 128 rows.
STEPS = {
    "one": ([2], lambda depth: ([1 + depth], [depth])),
    "padded": ([0, 3, 6, 6], lambda depth: ([1 + depth] * 4, [depth] * 4)),
    "mixed": ([1, 4, 5, 6], lambda depth: ([1 + depth, 9, 7, 1], [depth, 0, -1, -1])),
    "long": ([1, 4], lambda depth: ([100, 39], [-1, 0])),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("op", [prepare_rows_ref, prepare_rows_triton, prepare_rows])
@pytest.mark.parametrize("position_dtype", [torch.int32, torch.int64])
def test_prepare_rows(op, depth, step, position_dtype, device):
    slots = random_slots(seed=depth, depth=depth, device=device, length=160)
    slot_of, shape = STEPS[step]
    lengths, num_drafts = shape(depth)
    slots.n_S[[1, 4, 5]] = torch.tensor([11, 0, 30], dtype=torch.int32, device=device)
    rows = rows_of(slots, slot_of, lengths, num_drafts)
    rows.position_T = rows.position_T.to(position_dtype)
    before = deepcopy(slots)
    op(rows, slots)

    out = (rows.ids_T, rows.position_T, rows.kv_slot_T, rows.kv_len_B, rows.block_table_BP)
    ids, position, kv_slot, kv_len, table = (tensor.tolist() for tensor in out)
    offsets = [(request, offset) for request, length in enumerate(lengths) for offset in range(length)]
    for row, (request, offset) in enumerate(offsets):
        slot = slot_of[request]
        at = int(before.n_S[slot]) + offset
        is_draft = num_drafts[request] > 0 and offset > 0
        token = before.drafts_SK[slot, offset - 1] if is_draft else before.tokens_SL[slot, at]
        assert (ids[row], position[row], kv_slot[row]) == (max(int(token), 0), at, key_slot(before, slot, at))
    for request, slot in enumerate(slot_of):
        assert kv_len[request] == int(before.n_S[slot]) + lengths[request]
        assert table[request] == before.block_table_SP[slot].tolist()
    assert_same_bits(slots, before)


@pytest.mark.parametrize("op", [prepare_rows_ref, prepare_rows_triton])
def test_drafts_may_lie_behind_the_token_buffer(op, device):
    slots = random_slots(seed=5, depth=3, device=device, length=12)
    slots.n_S[0] = 11
    rows = rows_of(slots, [0], [4], [3])
    op(rows, slots)
    assert rows.ids_T.tolist() == [int(slots.tokens_SL[0, 11])] + slots.drafts_SK[0].clamp(min=0).tolist()
    assert rows.position_T.tolist() == [11, 12, 13, 14]


@pytest.mark.parametrize("op", [draft_first_ids_ref, draft_first_ids_triton, draft_first_ids])
def test_draft_first_ids_are_shifted_by_one(op, device):
    slots = random_slots(seed=1, depth=2, device=device)
    slot_of, row_req, positions = [3, 0, 6], [0, 0, 0, 1, 2], [4, 5, 39, 7, 0]
    slots.tokens_SL[0, 8] = -1
    ids = poisoned(5, dtype=torch.int64, device=device)
    op(*(torch.tensor(t, device=device) for t in (slot_of, row_req, positions)), slots.tokens_SL, ids)
    tokens = slots.tokens_SL.tolist()
    # The row at the buffer's end is a padded one: any valid id will do, here the last token's.
    assert ids.tolist() == [tokens[3][5], tokens[3][6], tokens[3][39], 0, tokens[6][1]]


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("requests", [1, 5, 130])
@pytest.mark.parametrize("step", [2, 3, 4])
@pytest.mark.parametrize("op", [draft_next_rows_ref, draft_next_rows_triton, draft_next_rows])
def test_draft_next_rows(op, step, requests, shift, device):
    slots = random_slots(seed=step, depth=4, device=device)
    slot_of = [index % 7 for index in range(requests)]
    out = poisoned_pass(requests, requests, device)
    op(out, torch.tensor(slot_of, device=device), slots, step, shift)
    filled = [tensor.tolist() for tensor in (out.ids_T, out.position_T, out.kv_slot_T, out.kv_len_B)]
    for request, slot in enumerate(slot_of):
        at = int(slots.n_S[slot]) + step - 2 + shift
        draft = max(int(slots.drafts_SK[slot, step - 2]), 0)
        assert [values[request] for values in filled] == [draft, at, key_slot(slots, slot, at), at + 1]


def test_draft_next_rows_refuses_steps_that_have_no_draft_before_them(device):
    slots = random_slots(seed=0, depth=2, device=device)
    with pytest.raises(AssertionError, match="step 1"):
        draft_next_rows(poisoned_pass(7, 7, device), torch.arange(7, device=device), slots, 1)


@pytest.mark.parametrize("requests", [1, 5, 130])
@pytest.mark.parametrize("op", [draft_pair_rows_ref, draft_pair_rows_triton, draft_pair_rows])
def test_draft_pair_rows_are_the_pending_token_and_the_one_before(op, requests, device):
    slots = random_slots(seed=requests, depth=4, device=device)
    slots.n_S[2], slots.tokens_SL[3, int(slots.n_S[3])] = 0, -1
    slot_of = [index % 7 for index in range(requests)]
    out = poisoned_pass(2 * requests, requests, device)
    op(out, torch.tensor(slot_of, device=device), slots)
    kv_len, filled = out.kv_len_B.tolist(), [tensor.tolist() for tensor in (out.ids_T, out.position_T, out.kv_slot_T)]
    for request, slot in enumerate(slot_of):
        n = max(int(slots.n_S[slot]), 1)  # nothing stands before position 0: dummies take positions 0 and 1
        assert kv_len[request] == n + 1
        for row, at in ((2 * request, n - 1), (2 * request + 1, n)):
            token = max(int(slots.tokens_SL[slot, at]), 0)
            assert [values[row] for values in filled] == [token, at, key_slot(slots, slot, at)]


@pytest.mark.parametrize("more", [0, 1, 3])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("op", [draft_one_pass_rows_ref, draft_one_pass_rows_triton, draft_one_pass_rows])
def test_one_pass_has_real_rows_up_to_the_accepted_token_and_placeholders_behind(op, step, more, device):
    depth, placeholder = 3, 99
    slots = random_slots(seed=more, depth=depth + more, device=device, length=160)
    slot_of, shape = STEPS[step]
    lengths, num_drafts = shape(depth)
    slots.n_S[[1, 4, 5]] = torch.tensor([11, 0, 30], dtype=torch.int32, device=device)
    slots.tokens_SL[slot_of[0], 5] = -1
    rows = rows_of(slots, slot_of, lengths, num_drafts)
    prepare_rows_ref(rows, slots)
    cu_q = [0]
    for length in lengths:
        cu_q.append(cu_q[-1] + length)
    accepted = [index % (depth + 1) for index in range(len(lengths))]
    last_real = [
        a if drafts > 0 else length - 1 for a, drafts, length in zip(accepted, num_drafts, lengths, strict=True)
    ]
    outcome = poisoned_outcome(len(lengths), depth + 1, device)
    outcome.sample_row_B = torch.tensor([first + at for first, at in zip(cu_q, last_real, strict=False)], device=device)
    rows.q_len_B[-1] = 0  # as the padding of a captured mixed step
    num_rows = cu_q[-1] + more * len(lengths)
    out, source = poisoned_pass(num_rows, len(lengths), device), poisoned(num_rows, dtype=torch.int64, device=device)
    cu_q_B1 = torch.tensor(cu_q, dtype=torch.int32, device=device)
    op(out, source, rows, cu_q_B1, outcome, slots, placeholder)

    found = list(zip(*(t.tolist() for t in (out.ids_T, out.position_T, out.kv_slot_T, source)), strict=True))
    expected = []
    for request, (slot, length) in enumerate(zip(slot_of, lengths, strict=True)):
        for offset in range(length + more):
            at = int(slots.n_S[slot]) + offset
            real = offset <= last_real[request]
            token = max(int(slots.tokens_SL[slot, min(at + 1, 159)]), 0) if real else placeholder
            expected.append((token, at, key_slot(slots, slot, at), cu_q[request] + offset if real else cu_q[-1]))
    assert found == expected
    n = [int(slots.n_S[slot]) + length + more for slot, length in zip(slot_of, lengths, strict=True)]
    assert out.kv_len_B.tolist() == [*n[:-1], 0]
