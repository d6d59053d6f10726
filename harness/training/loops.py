"""Responses that go round in circles: an 8-gram that occurs four times or more.

Small models repeat themselves, above all greedily, and what repeats is easy to draft: loops flatter every drafter and
would fill the training data with copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

LOOP_NGRAM = 8
LOOP_TIMES = 4


def loop_end(ids: Sequence[int], n: int = LOOP_NGRAM, times: int = LOOP_TIMES) -> int | None:
    """Tokens up to the end of the first n-gram that has occurred `times` times (overlaps count); None if none does."""
    if not _may_loop(ids, n, times):
        return None
    seen: Counter[tuple[int, ...]] = Counter()
    for end in range(n, len(ids) + 1):
        gram = tuple(ids[end - n : end])
        seen[gram] += 1
        if seen[gram] == times:
            return end
    return None


def _may_loop(ids: Sequence[int], n: int, times: int) -> bool:
    """Whether `times` n-grams have one hash: a hundred times as fast as looking, and most responses end here."""
    if len(ids) < n + times - 1:
        return False
    grams = np.lib.stride_tricks.sliding_window_view(np.asarray(ids, dtype=np.int64), n)
    hashes = grams @ np.array([31**power for power in range(n)], dtype=np.int64)
    return int(np.unique(hashes, return_counts=True)[1].max()) >= times


def is_loop(ids: Sequence[int]) -> bool:
    return loop_end(ids) is not None
