"""Which part of a certificate starts, of how many, and how long the rest takes."""

from __future__ import annotations

from collections.abc import Iterable

from specbench.harness.run.progress import Place, Progress
from specbench.harness.run.remaining import Remaining


class Parts:
    """`kinds`: of all parts to come; parts of one kind are assumed to take equally long."""

    def __init__(self, kinds: Iterable[str], progress: Progress):
        to_come = list(kinds)
        self._remaining = Remaining(to_come)
        self._num, self._num_begun = len(to_come), 0
        self._progress = progress

    def begin(self, label: str, kind: str) -> str:
        """Reports the progress, and returns it as text: `, part 2 of 9, about 3 min left`."""
        self._remaining.begin(kind)
        self._num_begun += 1
        place = self._num_begun, max(self._num, self._num_begun)  # one that was not foreseen is one more
        self._progress.at(Place(label, {"part": place}, self._remaining.left_s))
        return f", part {place[0]} of {place[1]}{self._remaining.text()}"
