from copy import deepcopy

import pytest
import torch
from kernels.slots import assert_same_bits, poisoned_outcome, random_slots, rows_of

from specbench.kernels.accept_chain import accept_chain, accept_chain_ref, accept_chain_triton
from specbench.kernels.buffers import Slots

OPS = [accept_chain_ref, accept_chain_triton, accept_chain]


def oracle(slots: Slots, slot: int, sampled: list[int], num_drafts: int, forced: int | None) -> tuple[list[int], int]:
    """One request, token by token: commits into `slots`; returns its status row and the accepted count."""
    n, done, limit = int(slots.n_S[slot]), int(slots.done_S[slot]), int(slots.limit_S[slot])
    if num_drafts < 0 or done != 0:
        return [0, 0, done, n, 0, 0] + [-1] * len(sampled), 0
    drafts, stops = slots.drafts_SK[slot].tolist(), [s for s in slots.stop_SE[slot].tolist() if s >= 0]
    offered = next((j for j in range(num_drafts) if drafts[j] < 0), num_drafts)
    accepted = 0
    if forced is None:
        while accepted < num_drafts and drafts[accepted] == sampled[accepted]:
            accepted += 1
        emitted = list(sampled)
    else:
        while accepted < min(num_drafts, forced) and drafts[accepted] >= 0:
            accepted += 1
        emitted = drafts[:accepted] + sampled[accepted:]
    committed = []
    while len(committed) <= accepted and done == 0:
        if n + 1 + len(committed) >= limit:
            done = 2
            break
        committed.append(emitted[len(committed)])
        if committed[-1] in stops:
            done = 1
    if done == 0 and n + len(committed) + 1 >= limit:
        done = 2
    for index, token in enumerate(committed):
        slots.tokens_SL[slot, n + 1 + index] = token
    slots.n_S[slot], slots.done_S[slot] = n + len(committed), done
    status = [accepted, len(committed), done, n + len(committed), offered, offered]
    return status + committed + [-1] * (len(sampled) - len(committed)), accepted


def run(op, slots: Slots, sampled, slot_of, num_drafts, base_row, forced):
    device, width = slots.n_S.device, sampled.shape[1]
    rows = rows_of(slots, slot_of, [width] * len(slot_of), num_drafts, base_row)
    outcome = poisoned_outcome(len(slot_of), width, device)
    forced_B = None if forced is None else torch.tensor(forced, device=device, dtype=torch.int32)
    op(sampled.to(device), rows, slots, outcome, forced_B)
    return outcome.status_BX.tolist(), outcome.sample_row_B.tolist()


@pytest.mark.parametrize("is_forced", [False, True])
@pytest.mark.parametrize("depth", [0, 1, 3, 4])
@pytest.mark.parametrize("op", OPS)
def test_against_token_by_token(op, depth, is_forced, device):
    seen = set()
    for seed in range(25):
        generator = torch.Generator().manual_seed(1000 + seed)
        slots = random_slots(seed=seed, depth=depth, device=device)
        slot_of = torch.randperm(6, generator=generator).tolist()[:5] + [6, 6]  # two dummies
        slots.done_S[slot_of[4]] = 2
        sampled = torch.randint(0, 6, (7, depth + 1), generator=generator)
        likely = torch.rand(7, depth, generator=generator) < 0.8
        drafts = slots.drafts_SK.cpu()[slot_of]
        sampled[:, :depth] = torch.where(likely & (drafts >= 0), drafts, sampled[:, :depth])
        num_drafts = [depth, depth, 0, -1, depth, depth, depth]
        if depth > 1:
            num_drafts[1] = depth - 1
        forced = torch.randint(0, depth + 2, (7,), generator=generator).tolist() if is_forced else None
        expected_slots = deepcopy(slots)
        base_row = [10 * request for request in range(7)]
        status, sample_row = run(op, slots, sampled, slot_of, num_drafts, base_row, forced)
        for request, slot in enumerate(slot_of):
            force = forced[request] if forced is not None else None
            row, accepted = oracle(expected_slots, slot, sampled[request].tolist(), num_drafts[request], force)
            assert status[request] == row
            assert sample_row[request] == base_row[request] + accepted
            seen.add((row[0], row[2]))
        assert_same_bits(slots, expected_slots)
    assert {done for _, done in seen} == {0, 1, 2} and {accepted for accepted, _ in seen} == set(range(depth + 1))


def plain_slots(device, **changes) -> Slots:
    slots = random_slots(seed=0, depth=3, device=device, num_slots=2)
    slots.n_S[0], slots.limit_S[0], slots.stop_SE[:] = 5, 40, -1
    slots.drafts_SK[0] = torch.tensor([1, 2, 3])
    for name, value in changes.items():
        getattr(slots, name)[0] = torch.tensor(value)
    return slots


@pytest.mark.parametrize(
    "changes,expected",
    [
        ({}, [3, 4, 0, 9, 3, 3, 1, 2, 3, 0]),
        ({"stop_SE": [2, -1, -1]}, [3, 2, 1, 7, 3, 3, 1, 2, -1, -1]),
        ({"stop_SE": [-1, 0, -1]}, [3, 4, 1, 9, 3, 3, 1, 2, 3, 0]),
        ({"limit_S": 8}, [3, 2, 2, 7, 3, 3, 1, 2, -1, -1]),
        ({"limit_S": 8, "stop_SE": [2, -1, -1]}, [3, 2, 1, 7, 3, 3, 1, 2, -1, -1]),
        ({"limit_S": 6}, [3, 0, 2, 5, 3, 3, -1, -1, -1, -1]),
        ({"drafts_SK": [1, 9, 3]}, [1, 2, 0, 7, 3, 3, 1, 2, -1, -1]),
        ({"done_S": 1}, [0, 0, 1, 5, 0, 0, -1, -1, -1, -1]),
    ],
    ids=["all", "stop-inside", "stop-on-bonus", "limit", "stop-at-limit", "no-room", "reject", "done"],
)
@pytest.mark.parametrize("op", [accept_chain_ref, accept_chain_triton])
def test_written_out_cases(op, changes, expected, device):
    slots = plain_slots(device, **changes)
    before = slots.tokens_SL.clone()
    status, _ = run(op, slots, torch.tensor([[1, 2, 3, 0]]), [0], [3], [0], None)
    assert status == [expected]
    count = expected[1]
    assert slots.tokens_SL[0, 6 : 6 + count].tolist() == expected[6 : 6 + count]
    before[0, 6 : 6 + count] = slots.tokens_SL[0, 6 : 6 + count]
    assert torch.equal(slots.tokens_SL, before)


@pytest.mark.parametrize("op", [accept_chain_ref, accept_chain_triton])
def test_without_stop_ids(op, device):
    slots = plain_slots(device)
    slots.stop_SE = slots.stop_SE[:, :0]
    status, _ = run(op, slots, torch.tensor([[1, 2, 0, 0]]), [0], [3], [0], None)
    assert status == [[2, 3, 0, 8, 3, 3, 1, 2, 0, -1]]


@pytest.mark.parametrize(
    ("drafts", "offered"), [([-1, -1, -1], 0), ([1, -1, 3], 1), ([9, 2, -1], 2)], ids=["none", "one", "two"]
)
@pytest.mark.parametrize("op", [accept_chain_ref, accept_chain_triton])
def test_missing_drafts_are_not_offered(op, drafts, offered, device):
    slots = plain_slots(device, drafts_SK=drafts)
    status, _ = run(op, slots, torch.tensor([[1, 2, 3, 0]]), [0], [3], [0], None)
    assert status[0][4:6] == [offered, offered]


@pytest.mark.parametrize("op", [accept_chain_ref, accept_chain_triton])
def test_forced_acceptance_emits_the_drafts(op, device):
    slots = plain_slots(device)
    status, sample_row = run(op, slots, torch.tensor([[0, 0, 4, 0]]), [0], [3], [20], [2])
    assert status == [[2, 3, 0, 8, 3, 3, 1, 2, 4, -1]] and sample_row == [22]
