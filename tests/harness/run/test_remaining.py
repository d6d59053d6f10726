"""How long the rest of a run will take."""

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


def test_durations():
    assert [duration(s) for s in (40.2, 89, 90, 600, 5400)] == ["40 s", "89 s", "2 min", "10 min", "1.5 h"]
