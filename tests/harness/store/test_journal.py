"""Rows of a block on disk as they come: what a kill leaves, and what replaces it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from run_samples import begun

from specbench.harness.store.rows import PhaseRow, RequestRow
from specbench.harness.store.run_directory import RunDirectory

ROOT = Path(__file__).parents[3]
ROWS = [
    RequestRow(n, f"p{n}", 4, 2, "length", 0, 10 + n, 20 + n, output_token_ids=[7, n], num_preemptions=0)
    for n in range(3)
]
PHASE = PhaseRow(0, "verify", 5, False, "host_clock")


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path, "test", begun("a"))


def test_a_block_that_is_kept(directory):
    block = directory.begin_block("a", 1, 3)
    for row in ROWS[:2]:
        block.request(row)
    block.add_phases([PHASE])
    block.keep()
    (partial,) = RunDirectory.open(directory.path).partial_blocks()
    assert (partial.arm, partial.repeat, partial.num_requests) == ("a", 1, 3)
    assert partial.requests == tuple(ROWS[:2]) and partial.phases == (PHASE,)
    assert directory.done_blocks() == set() and directory.frames().requests.empty


def test_a_block_that_ends_leaves_no_journal(directory):
    block = directory.begin_block("a", 0, 3)
    for row in reversed(ROWS):
        block.request(row)
    directory.finish_block("a", 0, block)
    assert directory.partial_blocks() == [] and not (directory.path / "journal").exists()
    assert directory.frames().requests["request_id"].tolist() == [0, 1, 2], "in their order, not as they ended"


def test_a_block_without_requests_leaves_nothing(directory):
    directory.begin_block("a", 0, 3).keep()
    assert directory.partial_blocks() == []


def test_measuring_again_replaces(directory):
    for num in (3, 1):
        block = directory.begin_block("a", 0, 3)
        for row in ROWS[:num]:
            block.request(row)
        block.keep()
    (partial,) = directory.partial_blocks()
    assert len(partial.requests) == 1


def test_a_line_that_was_cut_off_is_left_out(directory):
    block = directory.begin_block("a", 0, 3)
    for row in ROWS:
        block.request(row)
    block.keep()
    (path,) = (directory.path / "journal").iterdir()
    path.write_text(path.read_text()[: -len("\n") - 5])
    (partial,) = directory.partial_blocks()
    assert [row.request_id for row in partial.requests] == [0, 1]
    path.write_text('{"arm": "a", "rep')
    assert directory.partial_blocks() == []


def test_a_kill_keeps_what_had_ended(directory):
    """In a process of its own, which gives the journal's thread time to write."""
    code = f"""
import time
from specbench.harness.store.rows import RequestRow
from specbench.harness.store.run_directory import RunDirectory
block = RunDirectory.open({str(directory.path)!r}).begin_block("a", 0, 3)
block.request(RequestRow(0, "p0", 4, 2, "length", 0, 10, 20))
while block.path.stat().st_size < 100:
    time.sleep(0.01)
print("written", flush=True)
time.sleep(60)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT / ".ns")}
    )
    assert process.stdout is not None and process.stdout.readline() == b"written\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    (partial,) = RunDirectory.open(directory.path).partial_blocks()
    assert [row.prompt_id for row in partial.requests] == ["p0"] and partial.num_requests == 3
