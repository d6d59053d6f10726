"""How long the rest of a run will take."""

from toy.clock import Clock

from specbench.harness.run import remaining as module
from specbench.harness.run.remaining import Remaining, duration


def test_what_is_left_is_judged_by_the_last_block_of_each_arm():
    remaining = Remaining(["a", "b", "a", "b", "a"])
    assert remaining.text() == "", "nothing has ended"
    remaining.ended("a", 30.0)
    assert remaining.text() == ", about 2 min left", "b is taken for as slow as a: 4 times 30 s"
    remaining.ended("b", 10.0)
    assert remaining.text() == ", about 70 s left"
    remaining.ended("a", 20.0)
    assert remaining.text() == ", about 30 s left", "the first block had the warm-up"


def test_one_that_begins_ends_the_one_before_in_whatever_order(monkeypatch):
    clock = Clock(tick_ns=0)
    monkeypatch.setattr(module, "time", clock)  # of this module alone: other threads look at the time too
    remaining, told = Remaining(["texts", "texts", "texts", "seeds", "seeds"]), []
    for kind, took_s in [("texts", 10), ("seeds", 3), ("texts", 10), ("seeds", 0)]:
        told.append(remaining.begin(kind))
        clock.sleep(took_s)
    assert told == ["", ", about 40 s left", ", about 23 s left", ", about 13 s left"]


def test_what_was_not_foreseen_is_not_taken_off():
    remaining = Remaining(["a"])
    remaining.ended("b", 5.0)
    assert remaining.text() == ", about 5 s left"


def test_durations():
    assert [duration(s) for s in (40.2, 89, 90, 600, 5400)] == ["40 s", "89 s", "2 min", "10 min", "1.5 h"]
