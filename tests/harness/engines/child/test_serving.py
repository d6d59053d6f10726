"""When a child hands requests to its engine: in order of arrival, never more at once than allowed."""

from __future__ import annotations

import threading

import pytest

from specbench.harness.engines.child.wire import Ended, Serving, Step, StepRow


class Bench:
    """A serving whose clock the test moves."""

    def __init__(self, arrivals: list[float], most: int):
        self.now_ns = 1_000
        self.sent: list[dict] = []
        self.cancelled = threading.Event()
        requests = [{"id": number, "arrival_s": at} for number, at in enumerate(arrivals)]
        self.serving = Serving(requests, most, self.sent.append, self.cancelled, lambda: self.now_ns)

    def due(self) -> list[int]:
        return [request["id"] for request in self.serving.due()]

    def end(self, number: int) -> None:
        self.serving.end(Ended(number, 3, [1, 2], "length", self.now_ns, self.now_ns))


def test_no_more_requests_at_once_than_allowed():
    bench = Bench([0, 0, 0, 0], 2)
    assert bench.due() == [0, 1] and bench.due() == []
    bench.end(1)
    assert bench.due() == [2] and bench.serving.in_flight == [0, 2]
    for number in (0, 2):
        bench.end(number)
    assert not bench.serving.is_over and bench.due() == [3]
    bench.end(3)
    assert bench.serving.is_over


def test_no_request_before_its_arrival_whatever_the_order_they_are_given_in():
    bench = Bench([2.0, 0.5, 0.0], 8)
    assert bench.due() == [2]
    bench.now_ns += 499_999_999
    assert bench.due() == []
    bench.now_ns += 1
    assert bench.due() == [1]
    bench.now_ns += 2_000_000_000
    assert bench.due() == [0]


def test_the_time_of_submission_is_when_the_engine_got_it():
    bench = Bench([0.0, 0.0], 1)
    bench.due()
    bench.now_ns = 5_000
    bench.end(0)
    bench.due()
    bench.now_ns = 9_000
    bench.end(1)
    assert [message["ended"][0]["t_submit_ns"] for message in bench.sent] == [1_000, 5_000]


def test_with_arrival_times_it_is_when_a_server_would_have_got_it():
    """Or when there was a place: a request that waits for one is not yet sent."""
    bench = Bench([0.0, 1.0, 2.0], 2)
    begin_ns = bench.now_ns
    bench.due()
    bench.now_ns += 2_500_000_000  # a long step
    assert bench.due() == [1]
    bench.now_ns += 1_000_000_000
    bench.end(0)
    bench.now_ns += 1_000_000_000
    assert bench.due() == [2]
    for number in (2, 1):
        bench.end(number)
    sent = {message["ended"][0]["id"]: message["ended"][0]["t_submit_ns"] - begin_ns for message in bench.sent}
    assert sent == {0: 0, 1: 1_000_000_000, 2: 3_500_000_000}


def test_steps_of_a_request_are_sent_before_its_end():
    bench = Bench([0.0], 1)
    bench.due()
    step = Step(0, 1, 2, 1, [StepRow(0, 1, 0, 0, True, 3)])
    bench.serving.step(step)
    assert bench.sent == [], "not a message a step"
    bench.end(0)
    assert [list(message) for message in bench.sent] == [["steps"], ["ended"]] and bench.sent[0]["steps"] == [step]


def test_steps_of_a_long_answer_are_sent_on_the_way():
    bench = Bench([0.0], 1)
    for number in range(300):
        bench.serving.step(Step(number, 1, 2, 1, [StepRow(0, 1, 0, 0, False, 1)]))
    assert [len(message["steps"]) for message in bench.sent] == [256]


def test_after_a_cancel_nothing_more_becomes_due():
    bench = Bench([0.0, 0.0, 9.0], 1)
    bench.due()
    bench.cancelled.set()
    assert bench.due() == [] and not bench.serving.is_over
    bench.end(0)
    assert bench.serving.is_over


@pytest.mark.parametrize(("after_ns", "waited_s"), [(0, 3.0), (1_000_000_000, 2.0), (4_000_000_000, 0.0)])
def test_waits_for_the_next_arrival_and_no_longer(after_ns, waited_s):
    bench = Bench([3.0], 1)
    waits: list[float] = []
    bench.cancelled.wait = waits.append  # type: ignore[assignment]
    bench.now_ns += after_ns
    bench.serving.wait()
    assert waits == [pytest.approx(waited_s)]
    bench.now_ns += 4_000_000_000
    bench.due()
    bench.serving.wait()
    assert len(waits) == 1, "with a request in flight there is work"
