"""What becomes of all ranks when one of them fails, dies or hangs: one error that says which, and no process left."""

from __future__ import annotations

import traceback

import pytest
from toy.alive import is_alive

from specbench.harness.engines.native.ranks import processes
from specbench.harness.engines.native.ranks.processes import Processes

RANK = "toy.obedient_rank"


@pytest.fixture
def ranks():
    made = Processes(2, RANK)
    try:
        yield made
    finally:
        made.end("the test is over")


class Receiver:
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def test_rank_0_answers_and_what_it_says_on_the_way_is_passed_on(ranks):
    receiver = Receiver()
    assert ranks.ask(receiver, "say", 0, "hello") == "done" and receiver.said == ["hello"]
    assert ranks.ask(None, "go", 1) == "nothing"


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (("die", 1), "tensor_parallel_size: rank 1 was killed by signal 9"),
        (("die", None), "tensor_parallel_size: rank [01] was killed by signal 9"),  # whichever was first
        (("leave", 1), "tensor_parallel_size: rank 1 ended with status 3: Error: no more"),
        (("fail", 1, "memory", "2 GiB"), "rank 1: out of memory: 2 GiB"),
        (("fail", 1, "input", "odd"), "rank 1: odd"),
        (("fail", None, "engine", "lost"), "rank 0: lost"),
        (("go", 1, "another way"), "rank 1 drew other tokens or made other steps than rank 0"),
    ],
)
def test_one_that_fails_ends_all(ranks, order, said):
    pids = ranks.pids
    with pytest.raises(RuntimeError, match=said) as raised:
        ranks.ask(None, *order)
    assert len(str(raised.value).splitlines()) == 1
    if order[0] == "fail":
        assert "its traceback" in "".join(traceback.format_exception(raised.value)), "for errors.log"
    assert ranks.ended and not any(map(is_alive, pids))
    with pytest.raises(RuntimeError, match=f"the ranks have ended: .*{said}"):
        ranks.ask(None, "go", None)


@pytest.mark.parametrize(
    ("kind", "error", "said"), [("input", ValueError, "odd"), ("memory", RuntimeError, "rank 0: out of memory: odd")]
)
def test_what_fails_everywhere_alike_leaves_them_ready(ranks, kind, error, said):
    with pytest.raises(error, match=said):
        ranks.ask(None, "fail", None, kind, "odd")
    assert not ranks.ended and ranks.ask(None, "go", None) == "done"


def test_one_that_waits_for_one_that_failed_is_not_waited_for(ranks, monkeypatch):
    monkeypatch.setattr(processes, "_OTHERS_S", 0.5)
    obey = ranks._processes[0].orders.send
    monkeypatch.setattr(ranks._processes[0].orders, "send", lambda order: obey(type(order)("hang", (0,))))
    with pytest.raises(RuntimeError, match="rank 1: out of memory: 2 GiB"):
        ranks.ask(None, "fail", 1, "memory", "2 GiB")
    assert ranks.ended


def test_an_error_of_the_receiver_ends_them(ranks):
    pids = ranks.pids

    class FullDisk:
        def say(self, text: str) -> None:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        ranks.ask(FullDisk(), "say", 0, "a row")
    assert not any(map(is_alive, pids))
