"""Progress of a loop over stored files, said every so often: most loops are over before the first line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from specbench.harness.run.progress import Place, Progress
from specbench.harness.run.remaining import duration

EVERY_S = 10.0
_Item = TypeVar("_Item")


def told(
    items: Sequence[_Item], what: str, progress: Progress, clock: Callable[[], float] = time.monotonic
) -> Iterator[_Item]:
    """The items, one by one. Every 10 s: which of them is next, and how long the rest takes if each is as long as those
    before. `what`: one of them is called, as in `run 40 of 300, about 2 min left`."""
    began = said = clock()
    for number, item in enumerate(items):
        now = clock() if number else began
        if number and now - said >= EVERY_S:
            said = now
            left_s = (now - began) / number * (len(items) - number)
            progress.at(Place("", {what: (number + 1, len(items))}, left_s))
            progress.say(f"{what} {number + 1} of {len(items)}, about {duration(left_s)} left")
        yield item
