"""Progress of a loop over stored files: nothing of a short one, else which file is next and how long the rest takes."""

from __future__ import annotations

import itertools

import pytest

from specbench.harness.run.progress import NullProgress
from specbench.harness.run.track import track


class Kept(NullProgress):
    def __init__(self):
        self.said, self.places = [], []

    def say(self, text):
        self.said.append(text)

    def at(self, place):
        self.places.append(place)


@pytest.mark.parametrize(
    ("each_s", "said"),
    [
        (1.0, []),
        (4.0, ["run 4 of 6, about 12 s left"]),
        (60.0, [f"run {n} of 6, about {left} left" for n, left in enumerate(("5 min", "4 min", "3 min"), start=2)]),
    ],
)
def test_a_line_every_ten_seconds(each_s, said):
    progress, times = Kept(), itertools.count(100.0, each_s)
    items = [f"item {n}" for n in range(6)]
    assert list(track(items, "run", progress, clock=lambda: next(times))) == items
    assert progress.said[: len(said)] == said and bool(progress.said) == bool(said)
    assert len(progress.places) == len(progress.said)


def test_the_place_is_reported_with_the_time_left():
    progress, times = Kept(), iter((0.0, 20.0))
    list(track(["a", "b"], "series", progress, clock=lambda: next(times)))
    (place,) = progress.places
    assert (place.counts, place.remaining_s) == ({"series": (2, 2)}, 20.0)
