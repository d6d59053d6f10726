"""Grouping on arrays does what pandas' group-by, cumcount and merge do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from specbench.harness.metrics.grouping import group_numbers, occurrences, places_of, starts_of_runs, with_prompts


@pytest.fixture(params=range(5))
def rows(request) -> pd.DataFrame:
    draw = np.random.default_rng(request.param)
    n = draw.integers(0, 40)
    words = draw.choice(["b", "a", "c"], n)
    return pd.DataFrame({"repeat": draw.integers(0, 3, n), "word": words, "value": draw.random(n)})


@pytest.mark.parametrize("keys", [["word"], ["repeat", "word"], ["word", "repeat"]])
def test_groups_are_numbered_as_a_sorted_group_by_orders_them(rows, keys):
    numbers = group_numbers(rows[key].to_numpy() for key in keys)
    groups = rows.groupby(keys, sort=True)
    assert numbers.tolist() == groups.ngroup().tolist()
    assert occurrences(numbers).tolist() == groups.cumcount().tolist()
    sums = np.bincount(numbers, rows["value"], minlength=groups.ngroups)
    assert sums == pytest.approx(groups["value"].sum().to_numpy())


def test_rows_without_a_key_are_a_group_of_their_own():
    assert group_numbers([np.array([2.0, np.nan, 1.0, np.nan])]).tolist() == [1, 2, 0, 2]


@pytest.mark.parametrize(("values", "starts"), [([], []), ([5], [0]), ([1, 1, 2, 1], [0, 2, 3])])
def test_starts_of_runs(values, starts):
    assert starts_of_runs(np.array(values)).tolist() == starts


def test_places():
    assert places_of(np.array([3, 0, 7, 1]), np.array([1, 3])).tolist() == [1, -1, -1, 0]


def test_steps_get_the_prompt_of_their_request_in_the_same_repeat():
    requests = pd.DataFrame({"repeat": [0, 0, 1], "request_id": [0, 1, 0], "prompt_id": ["a", "b", "c"]})
    steps = pd.DataFrame({"repeat": [1, 0, 0, 1], "request_id": [0, 1, 0, 9], "step": [3, 2, 1, 4]})
    found = with_prompts(steps, requests)
    assert found.to_dict("list") == {
        "repeat": [1, 0, 0],
        "request_id": [0, 1, 0],
        "step": [3, 2, 1],
        "prompt_id": ["c", "b", "a"],
    }
