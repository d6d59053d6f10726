"""Progress of a loop over stored files, printed periodically; most loops end before the first line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from specbench.harness.run.progress import Place, Progress
from specbench.harness.run.remaining import duration

EVERY_S = 10.0
_Item = TypeVar("_Item")


def track(
    items: Sequence[_Item], what: str, progress: Progress, clock: Callable[[], float] = time.monotonic
) -> Iterator[_Item]:
    """Yields the items. Every 10 s, prints which one is next and the time left, if the rest takes as long on average as
    those before. `what`: the name of an item, as in `run 40 of 300, about 2 min left`."""
    began = printed = clock()
    for number, item in enumerate(items):
        now = clock() if number else began
        if number and now - printed >= EVERY_S:
            printed = now
            left_s = (now - began) / number * (len(items) - number)
            progress.at(Place("", {what: (number + 1, len(items))}, left_s))
            progress.say(f"{what} {number + 1} of {len(items)}, about {duration(left_s)} left")
        yield item
