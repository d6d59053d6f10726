"""Figures by category on a run of chosen times: two categories whose requests differ."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from run_samples import begun, chain_block

from specbench.harness.metrics.by_category import MAX_CATEGORIES, category_figures, divided_by
from specbench.harness.metrics.metrics import summarise
from specbench.harness.metrics.run_results import results
from specbench.harness.store.run_directory import RunDirectory

KINDS = {"p0": "maths", "p1": "prose", "p2": "maths", "p3": "prose"}


@pytest.fixture
def frames(tmp_path):
    run = RunDirectory.create(tmp_path, "x", begun("no-spec", "eagle"))
    for repeat, ms in enumerate((8.0, 12.0, 9.0)):
        run.append("no-spec", repeat, **chain_block([0] * 6, k=0, round_ms=ms))
        run.append("eagle", repeat, **chain_block([4, 0, 2, 1], round_ms=10.0))
    return replace(run.frames(), categories=KINDS)


def test_a_category_by_hand(frames):
    maths, prose = results(frames).arms[1].categories
    assert (maths.name, maths.num_prompts, prose.name, prose.num_prompts) == ("maths", 2, "prose", 2)
    # Requests 0 and 3 accept 4 0 2 1, request 1 accepts 0 2 1, request 2 accepts 2 1.
    assert maths.acceptance.acceptance_length == pytest.approx(1 + (7 + 3) / (4 + 2))
    assert prose.acceptance.acceptance_length == pytest.approx(1 + (3 + 7) / (3 + 4))
    tpot = {"maths": [40 / 11, 20 / 5], "prose": [30 / 6, 40 / 11]}  # rounds of 10 ms / tokens after the first
    assert maths.tpot_ms == pytest.approx(np.mean(tpot["maths"]))
    assert prose.tpot_ms == pytest.approx(np.mean(tpot["prose"]))
    base = np.log([8.0, 12.0, 9.0]).mean()
    for found in (maths, prose):
        assert found.speedup.baseline == "no-spec" and found.speedup.num_pairs == 6
        assert np.log(found.speedup.tpot_ratio) == pytest.approx(base - np.log(tpot[found.name]).mean())
    assert [c.tpot_ms for c in results(frames).arms[0].categories] == pytest.approx([9.0, 9.0])


def test_blocks_that_failed_do_not_count(frames):
    measured = [("eagle", 1), ("no-spec", 1)]
    (maths, _) = category_figures("eagle", "no-spec", measured, frames)
    assert maths.acceptance.num_verifications == 6


def test_a_run_of_one_category_is_not_divided(frames):
    assert summarise({}, replace(frames, categories={}))[0].categories == ()
    assert divided_by(replace(frames, categories=dict.fromkeys(KINDS, "maths"))) == []


def test_categories_need_prompts_and_data_sets_do_not(frames):
    few = {"p0": "a", "p1": "b", "p2": "c"}
    assert divided_by(replace(frames, categories=few)) == []
    many = {f"p{n}": f"c{n // 2}" for n in range(2 * MAX_CATEGORIES + 2)}
    assert divided_by(replace(frames, categories=many)) == []
    assert divided_by(replace(frames, categories=dict(list(many.items())[:-2]))) == [f"c{n}" for n in range(20)]
    sets = {"a:0": "a", "b:0": "b", "c:0": "c"}
    assert divided_by(replace(frames, categories=sets)) == ["a", "b", "c"]
