"""Two ranks as two processes, which write into each other's inbox."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from kernels.all_reduce_rank import CALLS, EPS, HIDDEN, NUM_BYTES, NUM_RANKS, parts_of

from specbench.kernels.all_reduce_norm import (
    MAX_ROWS,
    Inbox,
    all_reduce_add_rms_norm_ref,
    all_reduce_ref,
    all_reduce_rows,
)

PROGRAM = Path(__file__).with_name("all_reduce_rank.py")
ENVIRONMENT = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(PROGRAM.parents[2] / ".ns")}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_rank_has_the_sum_of_each_call_and_an_empty_inbox(dtype, tmp_path):
    name = str(dtype).removeprefix("torch.")
    ranks = [
        subprocess.Popen([sys.executable, str(PROGRAM), str(tmp_path), str(rank), name], env=ENVIRONMENT)
        for rank in range(NUM_RANKS)
    ]
    try:
        assert [rank.wait(timeout=120) for rank in ranks] == [0] * NUM_RANKS
    finally:
        for rank in ranks:
            rank.kill()
    for rank in range(NUM_RANKS):
        said, is_empty = torch.load(tmp_path / f"said-{rank}.pt")
        assert is_empty
        for call, (y, residual) in enumerate(said):
            *parts, wanted_residual, weight = parts_of(call, dtype)
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


def test_an_inbox_takes_what_it_has_room_for():
    words = torch.empty(Inbox.shape(NUM_BYTES, NUM_RANKS, torch.bfloat16), dtype=torch.int16)
    inbox = Inbox.over(words, [0, 0], rank=0)
    assert inbox.takes(torch.empty(32, 64)) and not inbox.takes(torch.empty(33, 64))
    assert not inbox.takes(torch.empty(MAX_ROWS + 1, 0))
    with pytest.raises(AssertionError):
        all_reduce_rows(torch.empty(33, 64, dtype=torch.bfloat16), inbox)
