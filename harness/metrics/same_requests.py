"""Which requests of two arms are the same request, and whether they got the same answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from specbench.harness.metrics.grouping import both_group_numbers, occurrences, places_of

KEYS = ("repeat", "prompt_id", "occurrence")
SUFFIXES = ("_a", "_b")
UNANSWERED = ("error", "abort")  # finish reasons
_OF_TEXT = "text:"  # how the hash of an output without token ids begins


def pair_requests(a: pd.DataFrame, b: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Requests of two arms that ran the same prompt in the same repeat (or block): KEYS, and `columns` of both sides,
    ending in _a and _b. A prompt's n-th run pairs with its n-th. `a`, `b`: rows of `requests`, one arm each."""
    a, b = (rows.iloc[np.argsort(rows["request_id"].to_numpy(), kind="stable")] for rows in (a, b))
    a, b = (
        rows.assign(occurrence=occurrences(numbers))
        for rows, numbers in zip((a, b), both_group_numbers(a, b, KEYS[:2]), strict=True)
    )
    places = places_of(*both_group_numbers(a, b, KEYS))
    rows_a = np.flatnonzero(places >= 0)
    rows_b = places[rows_a]
    pairs = {key: a[key].array.take(rows_a) for key in KEYS}
    pairs |= {f"{name}{SUFFIXES[0]}": a[name].array.take(rows_a) for name in columns}
    pairs |= {f"{name}{SUFFIXES[1]}": b[name].array.take(rows_b) for name in columns}
    return pd.DataFrame(pairs)


def same_output(pairs: pd.DataFrame) -> pd.Series:
    """For each pair of `pair_requests` (with the column output_sha256), whether both have the same tokens."""
    return pairs["output_sha256_a"] == pairs["output_sha256_b"]


def are_answered(pairs: pd.DataFrame) -> pd.Series:
    """For each pair (with the column finish_reason), whether neither side failed or was aborted."""
    return ~(pairs["finish_reason_a"].isin(UNANSWERED) | pairs["finish_reason_b"].isin(UNANSWERED))


def can_be_same(pairs: pd.DataFrame) -> pd.Series:
    """For each pair, whether both outputs are known, and in the same form: tokens are not compared with text."""
    a, b = (pairs[f"output_sha256{suffix}"].astype(object) for suffix in SUFFIXES)
    is_text = [side.map(lambda digest: str(digest).startswith(_OF_TEXT)) for side in (a, b)]
    return a.notna() & b.notna() & (is_text[0] == is_text[1])


def count_same_outputs(a: pd.DataFrame, b: pd.DataFrame) -> tuple[int, int]:
    """(pairs with identical tokens, pairs); none if no outputs can be compared. Requests that failed or were aborted
    have no whole output, so two of them are not the same."""
    pairs = pair_requests(a, b, ["output_sha256", "finish_reason"])
    is_known, is_answered = can_be_same(pairs), are_answered(pairs)
    if not is_known.any():
        return 0, 0
    return int((same_output(pairs) & is_known & is_answered).sum()), int((is_known | ~is_answered).sum())
