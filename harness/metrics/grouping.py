"""Grouping and joining of rows by their keys, on arrays.

A group-by or a merge of pandas takes a millisecond or more even for the few rows of a block, and the figures of a block
need dozens of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd


def group_numbers(columns: Iterable[np.ndarray]) -> np.ndarray:
    """The number of each row's group [R], from 0: rows are in one group if they agree in every column. Groups are
    numbered in sorted order, by the first column first."""
    numbers: np.ndarray | None = None
    for column in columns:
        found, distinct = pd.factorize(column, sort=True, use_na_sentinel=False)
        numbers = found if numbers is None else numbers * len(distinct) + found
    assert numbers is not None, "groups by nothing"
    return np.unique(numbers, return_inverse=True)[1]


def occurrences(numbers: np.ndarray) -> np.ndarray:
    """For each row, the number of earlier rows of the same group [R]."""
    order = np.argsort(numbers, kind="stable")
    starts = starts_of_runs(numbers[order])
    found = np.empty(len(numbers), dtype=int)
    found[order] = np.arange(len(numbers)) - np.repeat(starts, np.diff(np.append(starts, len(numbers))))
    return found


def starts_of_runs(ordered: np.ndarray) -> np.ndarray:
    """Indices at which a value differs from its predecessor, and 0; empty for no values."""
    return np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ordered)])


def both_group_numbers(a: pd.DataFrame, b: pd.DataFrame, keys: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """`group_numbers` of the rows of two tables, numbered together by the same columns."""
    both = group_numbers(np.concatenate([a[key].to_numpy(), b[key].to_numpy()]) for key in keys)
    return both[: len(a)], both[len(a) :]


def places_of(wanted: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """For each of `wanted`, the index at which `numbers` has it, or -1; `numbers` has no duplicates."""
    rows = np.full(max(wanted.max(initial=-1), numbers.max(initial=-1)) + 1, -1)
    rows[numbers] = np.arange(len(numbers))
    return rows[wanted]


def with_prompts(steps: pd.DataFrame, requests: pd.DataFrame) -> pd.DataFrame:
    """The steps of one arm that belong to one of its `requests`, with the `prompt_id` of that request."""
    of_steps, of_requests = both_group_numbers(steps, requests, ["repeat", "request_id"])
    places = places_of(of_steps, of_requests)
    known = places >= 0
    found = steps if known.all() else steps[known]
    return found.assign(prompt_id=requests["prompt_id"].array.take(places[known]))
