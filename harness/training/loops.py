"""Responses that loop: an 8-gram occurs four times or more.

Small models repeat themselves, above all when decoding greedily, and repetitions are easy to draft. Loops inflate the
acceptance of every drafter and would fill the training data with copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

LOOP_NGRAM = 8
LOOP_TIMES = 4


def loop_end(ids: Sequence[int]) -> int | None:
    """Tokens up to the end of the first n-gram's fourth occurrence (overlaps count); None if there is no loop."""
    if len(ids) < LOOP_NGRAM + LOOP_TIMES - 1:
        return None
    grams = np.lib.stride_tricks.sliding_window_view(np.asarray(ids, dtype=np.int64), LOOP_NGRAM)
    # Equal hashes first: a hundred times as fast as counting, and enough for most responses.
    hashes = grams @ np.array([31**power for power in range(LOOP_NGRAM)], dtype=np.int64)
    if np.unique(hashes, return_counts=True)[1].max() < LOOP_TIMES:
        return None
    seen: Counter[tuple[int, ...]] = Counter()
    for start, gram in enumerate(map(tuple, grams.tolist())):
        seen[gram] += 1
        if seen[gram] == LOOP_TIMES:
            return start + LOOP_NGRAM
    return None


def is_loop(ids: Sequence[int]) -> bool:
    return loop_end(ids) is not None
