"""Accuracy: paired by item, in the metric's own direction, corrected over all that is looked at."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from compare_samples import Machine, make_run

from specbench.harness.judge.gate import run_gates
from specbench.harness.judge.gate_result import FAILED, INCONCLUSIVE, NO_DATA, PASSED
from specbench.harness.judge.policy import parse_policy
from specbench.harness.judge.stored import read_run
from specbench.harness.metrics.accuracy import ACCURACY_SCHEMA

ARMS = ("no-spec", "eagle:k=4")


def judged(run, **gates):
    return run_gates(parse_policy({"gate": gates}), run)


def scored(path, *tables, **gate):
    pd.concat(tables).to_parquet(path / "accuracy.parquet")
    report = judged(read_run(path), accuracy=gate)
    return report, [r for r in report.results if r.gate == "accuracy"]


def scores(arm, correct, task="gsm8k", filter="none", better=True):
    count = len(correct)
    rows = {"arm": arm, "task": task, "item": range(count), "filter": filter, "metric": "exact", "version": "1"}
    more = {"num_fewshot": 5, "value": [float(c) for c in correct], "output_sha256": "", "num_output_tokens": 1}
    return pd.DataFrame(rows | more | {"higher_is_better": better})[ACCURACY_SCHEMA.names]


@pytest.mark.parametrize(("num_wrong", "status", "code"), [(0, PASSED, 0), (4, INCONCLUSIVE, 0), (40, FAILED, 6)])
def test_accuracy_is_paired_by_item(tmp_path, num_wrong, status, code):
    path = make_run(tmp_path, Machine())
    own = [n >= 100 + num_wrong for n in range(400)]
    table = pd.concat([scores("no-spec", [n >= 100 for n in range(400)]), scores("eagle:k=4", own)])
    table.to_parquet(path / "accuracy.parquet")
    report = judged(read_run(path), accuracy={"max_drop": "1%"})
    (result,) = [r for r in report.results if r.gate == "accuracy"]
    assert (result.status, report.exit_code) == (status, code)
    assert "McNemar" in result.reason


@pytest.mark.parametrize(
    ("drop", "noise", "status"), [(0.0, 0.01, PASSED), (0.05, 0.01, FAILED), (0.0, 0.5, INCONCLUSIVE)]
)
def test_scores_that_are_no_0_or_1_have_an_interval(tmp_path, drop, noise, status):
    path = make_run(tmp_path, Machine())
    random = np.random.default_rng(3)
    base = random.uniform(0.3, 0.7, 40)
    own = base - drop + noise * random.normal(size=40)
    pd.concat([scores("no-spec", base), scores("eagle:k=4", own)]).to_parquet(path / "accuracy.parquet")
    report = judged(read_run(path), accuracy={"max_drop": "1%"})
    (result,) = [r for r in report.results if r.gate == "accuracy"]
    assert result.status == status and "paired t" in result.reason


def test_scores_that_are_nan_are_named(tmp_path):
    path = make_run(tmp_path, Machine())
    values = [n >= 100 for n in range(4000)]
    own = scores("eagle:k=4", values)
    own.loc[:6, "value"] = float("nan")
    pd.concat([scores("no-spec", values), own]).to_parquet(path / "accuracy.parquet")
    report = judged(read_run(path), accuracy={})
    (result,) = [r for r in report.results if r.gate == "accuracy"]
    assert result.status == PASSED and "7 items without a score left out" in result.reason


@pytest.mark.parametrize(
    ("better", "change", "status"),
    [(True, -40, FAILED), (False, -40, PASSED), (False, +40, FAILED), (True, +40, PASSED), (None, -40, NO_DATA)],
)
def test_what_is_worse_is_the_metrics_own(tmp_path, better, change, status):
    path = make_run(tmp_path, Machine())
    values = [[n >= start for n in range(400)] for start in (100, 100 - change)]
    tables = [scores(arm, v, better=better) for arm, v in zip(ARMS, values, strict=True)]
    report, (result,) = scored(path, *tables)
    assert result.status == status and result.value == pytest.approx(change / 400)
    assert report.exit_code == {PASSED: 0, FAILED: 6, NO_DATA: 4}[status]
    if better is None:
        assert "whether higher or lower is better was not recorded" in result.reason


@pytest.mark.parametrize("drop", [0.05, -0.05])
def test_a_direction_of_scores_that_are_no_0_or_1(tmp_path, drop):
    path = make_run(tmp_path, Machine())
    base = np.random.default_rng(3).uniform(0.3, 0.7, 40)
    own = base - drop + 0.01 * np.random.default_rng(4).normal(size=40)
    tables = [scores(arm, v, better=False) for arm, v in zip(ARMS, (base, own), strict=True)]
    _, (result,) = scored(path, *tables)
    assert result.status == (PASSED if drop > 0 else FAILED)


def test_the_baseline_arm_of_the_run_is_the_reference(tmp_path):
    path = make_run(tmp_path, Machine(), arms=("no-spec", "ngram", "eagle:k=4"))
    good, bad = [True] * 400, [n >= 100 for n in range(400)]
    tables = [scores("no-spec", bad), scores("ngram", good), scores("eagle:k=4", bad)]
    pd.concat(tables).to_parquet(path / "accuracy.parquet")
    for baseline, status in (("no-spec", PASSED), ("ngram", FAILED)):
        policy = parse_policy({"baseline": baseline, "gate": {"accuracy": {}}})
        found = {r.arm: r.status for r in run_gates(policy, read_run(path)).results if r.gate == "accuracy"}
        assert found["eagle:k=4"] == status


@pytest.mark.parametrize("lacking", ARMS)
def test_a_task_with_scores_of_one_side_alone_has_no_verdict(tmp_path, lacking):
    both = [scores(arm, [True] * 400) for arm in ARMS]
    alone = [scores(arm, [True] * 400, task="arc") for arm in ARMS if arm != lacking]
    report, results = scored(make_run(tmp_path, Machine()), *both, *alone)
    assert {r.subject: r.status for r in results} == {"gsm8k, none, exact": PASSED, "arc, none, exact": NO_DATA}
    assert results[1].reason == "no item with a score on both sides" and report.exit_code == 4


def test_a_table_of_other_columns_is_named(tmp_path):
    path = make_run(tmp_path, Machine())
    pd.DataFrame({"x": [1]}).to_parquet(path / "accuracy.parquet")
    with pytest.raises(ValueError, match="accuracy.parquet: damaged"):
        judged(read_run(path), accuracy={})


def test_scores_from_before_directions_were_recorded_have_no_verdict(tmp_path):
    path = make_run(tmp_path, Machine())
    tables = [scores(arm, [True] * 50).drop(columns="higher_is_better") for arm in ARMS]
    report, (result,) = scored(path, *tables)
    assert result.status == NO_DATA and report.exit_code == 4


def test_holm_over_tasks_filters_and_arms(tmp_path):
    """A loss that counts alone (p 0.031) does not among many that are looked at."""
    arms = ("no-spec", "eagle:k=4", "ngram")
    path = make_run(tmp_path, Machine(), arms=arms)
    lost = [n not in range(6) for n in range(100)]
    alone = [scores("no-spec", [True] * 100), scores("eagle:k=4", lost)]
    _, results = scored(path, *alone, max_drop="1%")
    (result,) = [r for r in results if r.arm == "eagle:k=4"]
    others = [scores(arm, [True] * 100, task=t, filter=f) for arm in arms for t in ("a", "b") for f in ("x", "y")]
    report, results = scored(path, *alone, *others, max_drop="1%")
    (among,) = [r for r in results if r.subject == "gsm8k, none, exact" and r.arm == "eagle:k=4"]
    assert (result.status, among.status) == (FAILED, INCONCLUSIVE) and report.exit_code != 6
    assert "p (Holm) 0.031" in result.reason and "p (Holm) 0.28" in among.reason and len(results) >= 9
