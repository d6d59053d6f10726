"""Ranks as processes, which write into each other's inbox."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from kernels.all_reduce_rank import CALLS, EPS, HIDDEN, inbox_shape, parts_of

from specbench.kernels.all_reduce_norm import (
    EMPTY,
    MAX_HIDDEN,
    MAX_ROWS,
    Inbox,
    all_reduce_add_rms_norm_ref,
    all_reduce_ref,
    all_reduce_rows,
)

PROGRAM = Path(__file__).with_name("all_reduce_rank.py")
ENVIRONMENT = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(PROGRAM.parents[2] / ".ns")}


@pytest.mark.parametrize(("num_ranks", "dtype"), [(2, torch.float32), (2, torch.bfloat16), (4, torch.bfloat16)])
def test_every_rank_has_the_sum_of_each_call_and_an_empty_inbox(num_ranks, dtype, tmp_path):
    name = str(dtype).removeprefix("torch.")
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(tmp_path), str(num_ranks), str(rank), name], env=ENVIRONMENT
        )
        for rank in range(num_ranks)
    ]
    try:
        assert [rank.wait(timeout=120) for rank in ranks] == [0] * num_ranks
    finally:
        for rank in ranks:
            rank.kill()
    for rank in range(num_ranks):
        results, is_empty = torch.load(tmp_path / f"results-{rank}.pt")
        assert is_empty
        for call, (y, residual) in enumerate(results):
            *parts, wanted_residual, weight = parts_of(call, num_ranks, dtype)
            if call % 2:
                wanted = all_reduce_ref(parts)
            else:
                wanted = all_reduce_add_rms_norm_ref(parts, wanted_residual, weight, EPS)
            assert y.shape == (CALLS[call], HIDDEN)
            torch.testing.assert_close(y, wanted, equal_nan=True, **TOLERANCE[dtype])
            torch.testing.assert_close(residual, wanted_residual, **TOLERANCE[dtype])
            if call == 1:
                assert y.isnan().sum() == 1


# Triton's interpreter cuts bf16 off where devices round.
TOLERANCE = {torch.float32: {}, torch.bfloat16: dict(rtol=3e-2, atol=3e-2)}


def test_a_row_alternates_between_the_halves_whatever_the_others_do():
    """One process in the place of rank 0; what rank 1 sends is there already."""
    own, peer = (torch.empty(inbox_shape(2), dtype=torch.int32) for _ in range(2))
    inbox = Inbox.over(own, [own.data_ptr(), peer.data_ptr()], rank=0)
    peer.fill_(EMPTY)
    half_of_row = [0, 0, 0]
    for num_rows in (1, 3, 2, 3, 1):
        mine, theirs = torch.randn(2, num_rows, HIDDEN)
        for row in range(num_rows):
            own[half_of_row[row], 1, row, :HIDDEN] = theirs[row].view(torch.int32)
        torch.testing.assert_close(all_reduce_rows(mine, inbox), mine + theirs)
        for row in range(num_rows):
            sent = peer[half_of_row[row], 0, row, :HIDDEN]
            assert torch.equal(sent, mine[row].view(torch.int32))
            sent.fill_(EMPTY)  # rank 1 has read it
            half_of_row[row] = 1 - half_of_row[row]
        assert (own == EMPTY).all() and (peer == EMPTY).all(), "nothing else was written"


def test_an_inbox_takes_what_it_has_room_for():
    assert Inbox.shape(2) == (2, 2, MAX_ROWS, MAX_HIDDEN)
    inbox = Inbox.over(torch.empty(inbox_shape(2), dtype=torch.int16), [0, 0], rank=0)
    assert inbox.takes(torch.empty(4, 128)) and not inbox.takes(torch.empty(4))
    for shape in ((5, 128), (4, 129)):
        assert not inbox.takes(torch.empty(shape))
        with pytest.raises(AssertionError):
            all_reduce_rows(torch.empty(shape, dtype=torch.bfloat16), inbox)
