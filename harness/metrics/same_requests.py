"""Which requests of two arms are the same request, and whether they got the same answer."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

KEYS = ("repeat", "prompt_id", "occurrence")
SUFFIXES = ("_a", "_b")
FAILED = "error"  # as a finish_reason


def pair_requests(a: pd.DataFrame, b: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Requests of two arms that ran the same prompt in the same repeat (or block): KEYS, and `columns` of both sides,
    ending in _a and _b. A prompt's n-th run pairs with its n-th. `a`, `b`: rows of `requests`, one arm each."""
    sides = [_numbered(rows)[[*KEYS, *columns]] for rows in (a, b)]
    return sides[0].merge(sides[1], on=list(KEYS), suffixes=SUFFIXES)


def same_output(pairs: pd.DataFrame) -> pd.Series:
    """For each pair of `pair_requests` (with the column output_sha256), whether both have the same tokens."""
    return pairs["output_sha256_a"] == pairs["output_sha256_b"]


def count_same_outputs(a: pd.DataFrame, b: pd.DataFrame) -> tuple[int, int]:
    """(pairs with identical tokens, pairs). Failed requests have no output, so two of them are not the same."""
    pairs = pair_requests(a, b, ["output_sha256", "finish_reason"])
    has_failed = (pairs["finish_reason_a"] == FAILED) | (pairs["finish_reason_b"] == FAILED)
    return int((same_output(pairs) & ~has_failed).sum()), len(pairs)


def _numbered(rows: pd.DataFrame) -> pd.DataFrame:
    ordered = rows.sort_values("request_id")
    return ordered.assign(occurrence=ordered.groupby(["repeat", "prompt_id"]).cumcount())
