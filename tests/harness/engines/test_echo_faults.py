"""A server that fails, and a run that is interrupted in the middle of a block: what had ended is kept."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from functools import partialmethod

import pytest
from toy.echo_engine import EchoDeployment, EchoEngine

from specbench.harness.store.arm_record import EngineFacts
from specbench.harness.store.journal import OpenBlock

ARMS = ("-s", "no-spec", "-s", "ngram:k=3")


@pytest.fixture
def num_measured(monkeypatch) -> Callable[[str], int]:
    """Counts a request of `strategy`: how many the server has begun in the n-gram arm's block.

    A warm-up does not count: it takes as many requests as the machine's speed allows.
    """
    begun, counted = [], [0]
    init = OpenBlock.__init__

    def noted(self, path, arm, *rest):
        begun.append(arm)
        init(self, path, arm, *rest)

    def count(strategy: str) -> int:
        counted[0] += strategy == "ngram" and "ngram:k=3" in begun
        return counted[0]

    monkeypatch.setattr(OpenBlock, "__init__", noted)
    return count


@pytest.mark.parametrize(
    ("fault", "said"), [("500", "the server answered 500: out of words"), ("cut", "cut the stream")]
)
def test_a_failing_server_is_a_row_and_the_others_go_on(cli, echo, only_run, server, num_measured, fault, said):
    server.on_request = lambda number, strategy: fault if num_measured(strategy) >= 5 else ""
    result = cli(*echo, *ARMS, "--num-repeats", 1)
    assert result.exit_code == 1 and said in result.stdout and "Traceback" not in result.output
    assert only_run().done_blocks() == {("no-spec", 0)} and set(only_run().failed_blocks()) == {("ngram:k=3", 0)}
    (partial,) = only_run().partial_blocks()
    assert partial.arm == "ngram:k=3" and 0 < len(partial.requests) < partial.num_requests == 6
    server.on_request = lambda number, strategy: ""
    again = cli("run", "--resume", only_run().path)
    assert again.exit_code == 0 and only_run().partial_blocks() == [] and not (only_run().path / "journal").exists()


def test_an_interrupted_block_keeps_the_requests_that_had_ended(cli, echo, only_run, server, num_measured):
    def interrupt(number: int, strategy: str) -> str:
        if num_measured(strategy) == 4:
            signal.raise_signal(signal.SIGINT)
        return ""

    server.on_request = interrupt
    result = cli(*echo, *ARMS, "--num-repeats", 1)
    assert result.exit_code == 130, result.output
    run = only_run()
    assert run.record.status == "interrupted" and run.done_blocks() == {("no-spec", 0)}
    (partial,) = run.partial_blocks()
    num = len(partial.requests)
    assert 0 < num < 6 and [row.prompt_id for row in partial.requests] == [f"line-{n + 1}" for n in range(num)]
    assert re.search(rf"^\* ngram\S*: interrupted after {num} of 6 requests of repeat 1$", result.stdout, re.M)
    assert re.search(r"^ngram\S* +- +-", result.stdout, re.M)
    assert run.frames().requests["arm"].unique().tolist() == ["no-spec"], "no figure is made of it"

    server.on_request = lambda number, strategy: ""
    resumed = cli("run", "--resume", run.path)
    assert resumed.exit_code == 0 and "interrupted after" not in resumed.stdout
    assert len(only_run().done_blocks()) == 2 and only_run().partial_blocks() == []


def test_an_engine_that_starts_at_its_turn_is_still_of_the_version_before(cli, echo, only_run, server, monkeypatch):
    """It is not known when the run is resumed, only once it runs."""

    def facts(version: str) -> None:
        described = EngineFacts(version=version, graph_mode=None, backend=None, hardware=None)
        monkeypatch.setattr(EchoDeployment, "__init__", partialmethod(init, described=described))

    def interrupt(number: int, strategy: str) -> str:
        if not interrupted and len(only_run().done_blocks()) == 2:
            interrupted.append(number)
            signal.raise_signal(signal.SIGINT)
        return ""

    init, interrupted = EchoDeployment.__init__, list[int]()
    monkeypatch.setattr(EchoEngine, "takes_program", True)
    facts("1")
    server.on_request = interrupt
    result = cli(*echo, *ARMS, "--deploy", "alternate")
    assert result.exit_code == 130 and len(only_run().done_blocks()) == 2, result.output
    server.on_request = lambda number, strategy: ""
    facts("2")
    refused = cli("run", "--resume", only_run().path)
    said = "was measured on version 1 of its engine, it is now 2; start a new run"
    assert refused.exit_code == 2 and said in " ".join(refused.stderr.split()), refused.output
    run = only_run()
    assert len(run.done_blocks()) == 2 and not run.failed_blocks()
    assert {arm.engine.version for arm in run.record.arms} == {"1"}
    facts("1")
    resumed = cli("run", "--resume", run.path)
    assert resumed.exit_code == 0 and len(only_run().done_blocks()) == 4, resumed.output
