"""How long the rest of a run will take."""

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
    clock = iter((0.0, 10.0, 13.0, 23.0))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    remaining = Remaining(["texts", "texts", "texts", "seeds", "seeds"])
    told = [remaining.begin(kind) for kind in ("texts", "seeds", "texts", "seeds")]
    assert told == ["", ", about 40 s left", ", about 23 s left", ", about 13 s left"]


def test_what_was_not_foreseen_is_not_taken_off():
    remaining = Remaining(["a"])
    remaining.ended("b", 5.0)
    assert remaining.text() == ", about 5 s left"


def test_durations():
    assert [duration(s) for s in (40.2, 89, 90, 600, 5400)] == ["40 s", "89 s", "2 min", "10 min", "1.5 h"]
