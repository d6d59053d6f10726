"""A run of two ranks of which one dies or has no memory: one line that says which, no process left, what had ended
kept, and a run that goes on when it is resumed."""

from __future__ import annotations

import os
import signal
import time

from toy.alive import is_alive
from toy.patient_rank import lost
from toy.ranks import watched_ranks

from specbench.harness.engines.native.ranks import processes
from specbench.harness.run.block_sink import BlockSink
from specbench.harness.run.runner import ERROR_LOG

TWO = ("--device", "cpu", "--tensor-parallel-size", "2")


def lines_of(stderr: str, said: str) -> list[str]:
    return [line for line in stderr.splitlines() if said in line]


def test_a_rank_that_is_killed(cli, toy, only_run, monkeypatch):
    started, killed_at = watched_ranks(monkeypatch, "toy.patient_rank"), []

    def request(self, row, taken=BlockSink.request):
        taken(self, row)
        if not killed_at:
            killed_at.append(time.monotonic())
            os.kill(started[0].pids[1], signal.SIGKILL)
            lost(started[0])

    monkeypatch.setattr(BlockSink, "request", request)
    result = cli(*toy, *TWO, "-s", "no-spec", "-s", "ngram:k=2", "--num-repeats", 5)
    assert result.exit_code == 1 and time.monotonic() - killed_at[0] < 30
    (line,) = lines_of(result.stderr, "killed by signal 9")
    assert "no-spec: failed: tensor_parallel_size: rank 1 was killed by signal 9 (traceback: " in line
    assert not lines_of(result.stderr, "the ranks have ended")
    assert not any(map(is_alive, started[0].pids))
    run = only_run()
    (left,) = run.partial_blocks()
    assert [row.request_id for row in left.requests] == [0] and left.num_requests == 3
    assert set(run.failed_blocks()) == {(arm, repeat) for arm in ("no-spec", "ngram:k=2") for repeat in range(5)}
    assert (run.path / ERROR_LOG).read_text().count("Traceback") == 3  # the others were not tried

    resumed = watched_ranks(monkeypatch)
    assert cli("run", "--resume", run.path).exit_code == 0
    assert len(started) == len(resumed) == 1 and not any(map(is_alive, resumed[0].pids))
    run = only_run()
    assert len(run.done_blocks()) == 10 and not run.partial_blocks()
    assert run.record.arm("no-spec").engine.config["tensor_parallel_size"] == "2"
    assert run.record.forwards["no-spec"].target.num_ranks == 2


def test_a_rank_without_memory_while_the_other_waits_for_it(cli, toy, only_run, monkeypatch):
    monkeypatch.setattr(processes, "_OTHERS_S", 0.5)
    started = watched_ranks(monkeypatch, "toy.scarce_rank")
    result = cli(*toy, *TWO, "-s", "no-spec", "-s", "ngram:k=2")
    assert result.exit_code == 1
    (line,) = lines_of(result.stderr, "out of memory")
    assert "ngram:k=2: failed: rank 1: out of memory: CUDA out of memory. Tried to allocate 2.00 GiB." in line
    assert not any(map(is_alive, started[0].pids))
    run = only_run()
    assert run.done_blocks() == {("no-spec", 0)} and set(run.failed_blocks()) == {("ngram:k=2", 0)}
