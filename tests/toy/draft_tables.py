"""A table of `k=auto`: the best number of drafts is 4 for one request and 0 for nine."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.harness.store.draft_table import CountTimes, DraftTable, LoadTimes

COUNTS = (0, 1, 2, 4)


def at_load(load: int, tpot_ms: Sequence[float], counts: Sequence[int] = COUNTS) -> LoadTimes:
    times = [CountTimes(num_drafts=k, round_ms=10.0, tpot_ms=ms) for k, ms in zip(counts, tpot_ms, strict=True)]
    return LoadTimes(max_concurrency=load, best=0, times=tuple(times))


TABLE = DraftTable(
    strategy="ngram",
    options={},
    acceptance=(0.8, 0.8, 0.8, 0.8),
    loads=(at_load(1, (10.0, 7.0, 5.0, 4.0)), at_load(9, (6.0, 7.0, 9.0, 12.0))),
)
