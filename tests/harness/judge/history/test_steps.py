"""Simulated histories: steps are found, noise is not, and known or foreign changes start a new segment."""

from __future__ import annotations

import numpy as np
import pytest
from ruptures.costs import CostL1

from specbench.harness.judge.history.absolute_cost import AbsoluteCost
from specbench.harness.judge.history.points import Commit, Series
from specbench.harness.judge.history.steps import (
    ACCEPTED,
    DRIVEN,
    MACHINE,
    STEP,
    dated_steps,
    find_segments,
    find_suspects,
)
from specbench.reports.experiments.history_table import SegmentedSeries, series_table

CV = 0.003


def series(values, machines=None, metric="step_ms", driven=None):
    machines = machines or ["m1"] * len(values)
    driven = driven or [None] * len(values)
    commits = tuple(
        Commit(
            commit=f"{n:040x}",
            utc=f"2026-01-01T00:{n // 60:02}:{n % 60:02}Z",
            value=float(value),
            num_runs=1,
            fingerprint=machines[n],
            fingerprint_text=f"machine {machines[n]}",
            run_ids=(f"r{n}",),
            driven=driven[n],
        )
        for n, value in enumerate(values)
    )
    return Series(case="c", case_text="toy", arm="eagle", metric=metric, commits=commits)


def noisy(n=100, step_at=None, step=0.02, seed=0, cv=CV, spikes=0.03):
    """The noise of real nightlies: normal, with 3 % of points as spikes of +-6 %."""
    rng = np.random.default_rng(seed)
    values = 10 * np.exp(rng.normal(0, cv, n))
    spiked = rng.random(n) < spikes
    values[spiked] *= 1 + 0.06 * rng.choice([-1, 1], spiked.sum())
    if step_at is not None:
        values[step_at:] *= 1 + step
    return values


@pytest.mark.parametrize("seed", range(5))
def test_a_step_of_2_percent_is_found_and_dated(seed):
    found = series(noisy(step_at=60, seed=seed))
    segments = find_segments(found)
    assert [segment.begins for segment in segments] == ["", STEP]
    assert abs(segments[1].start - 60) <= 1
    (step,) = dated_steps(found, segments)
    assert step.change == pytest.approx(0.02, abs=0.003) and step.verdict == "regressed" and not step.accepted


@pytest.mark.parametrize("seed", range(5))
def test_no_false_alarm_in_100_points(seed):
    assert len(find_segments(series(noisy(seed=seed)))) == 1


@pytest.mark.parametrize("step_at", [3, 4, 5, 6, 7])
@pytest.mark.parametrize("seed", range(5))
def test_a_step_near_an_end_is_dated_to_its_own_commit(step_at, seed):
    found = series(noisy(n=10, step_at=step_at, step=0.1, seed=seed, spikes=0))
    (step,) = dated_steps(found, find_segments(found))
    assert (step.before, step.after) == (found.commits[step_at - 1], found.commits[step_at])


def test_no_suspect_in_100_points_and_a_step_is_suspected_at_once():
    values = noisy(seed=11, spikes=0)
    assert not [n for n in range(8, 100) if find_suspects(series(values[: n + 1]))]
    stepped = series(np.append(values, values[-1] * 1.03))
    (suspect,) = find_suspects(stepped)
    assert suspect.commit is stepped.commits[-1] and suspect.reference is stepped.commits[-2]
    assert suspect.verdict == "regressed" and suspect.low < suspect.expected < suspect.high < suspect.commit.value


def test_better_is_known_by_metric():
    faster = series(noisy(step_at=50), metric="tps")
    assert [s.verdict for s in dated_steps(faster, find_segments(faster))] == ["improved"]


def test_counts_without_noise():
    flat = [1.0] * 30
    assert len(find_segments(series(flat))) == 1 and not find_suspects(series(flat))
    assert [s.begins for s in find_segments(series(flat + [2.0] * 6))] == ["", STEP]
    (suspect,) = find_suspects(series(flat + [2.0]))
    assert suspect.change == pytest.approx(1.0)


def test_a_count_that_was_none_before():
    """sync=none has no synchronisation in any round; the first one is the regression that counts are kept for."""
    none = [0.0] * 30
    assert len(find_segments(series(none, metric="syncs_per_round"))) == 1
    assert not find_suspects(series(none, metric="syncs_per_round"))
    (suspect,) = find_suspects(series([*none, 1.0], metric="syncs_per_round"))
    assert suspect.verdict == "regressed" and suspect.change == float("inf")
    found = series([*none, *[1.0] * 6], metric="syncs_per_round")
    (step,) = dated_steps(found, find_segments(found))
    assert step.after is found.commits[30] and step.verdict == "regressed" and step.change == float("inf")
    fewer = series([*[1.0] * 6, *none], metric="syncs_per_round")
    (step,) = dated_steps(fewer, find_segments(fewer))
    assert step.verdict == "improved" and step.change == -1


def test_smaller_steps_than_matter_are_joined():
    values = noisy(step_at=50, step=0.006, cv=0.0005, spikes=0)
    assert len(find_segments(series(values))) == 1
    assert len(find_segments(series(values), min_effect=0.004)) == 2


def test_another_machine_starts_a_segment_and_is_no_step():
    found = series(noisy(step_at=50, step=0.5), ["m1"] * 50 + ["m2"] * 50)
    segments = find_segments(found)
    assert [s.begins for s in segments] == ["", MACHINE] and segments[1].start == 50
    assert dated_steps(found, segments) == []
    assert not find_suspects(series(noisy(53, step_at=50, step=0.5), ["m1"] * 50 + ["m2"] * 3))


def test_an_accepted_commit_is_no_suspect():
    values = noisy(52, step_at=51, step=0.1, spikes=0)
    assert len(find_suspects(series(values))) == 1
    accepted = [f"{51:040x}"[:40]]
    assert not find_suspects(series(values), accepted)
    found = series(noisy(step_at=60))
    (step,) = dated_steps(found, find_segments(found, [f"{60:040x}"]))
    assert step.accepted and find_segments(found, [f"{60:040x}"])[1].begins == ACCEPTED


def test_another_way_of_being_driven_starts_a_segment_and_is_no_regression():
    """HTTP makes it 30 % slower; a real step later is found. Runs that do not say how they were driven go with both."""
    values = noisy(spikes=0)
    values[40:] *= 1.3
    told = [*["in process"] * 20, *[None] * 20, *["HTTP"] * 60]
    found = series(values, driven=told)
    segments = find_segments(found)
    assert [(segment.start, segment.begins) for segment in segments] == [(0, ""), (40, DRIVEN)]
    assert dated_steps(found, segments) == []
    newest = series(values[:41], driven=told[:41])
    assert find_suspects(newest) == [] and find_suspects(series(values[:41])) != []
    table = series_table(SegmentedSeries(series=newest, segments=find_segments(newest), steps=[]), 2)
    assert table.rows[-1][-1] == "driven differently: from now on HTTP"
    (step,) = dated_steps(series(values), find_segments(series(values)))
    assert step.verdict == "regressed", "nobody said that they were driven differently"
    values[70:] *= 1.05
    assert [segment.begins for segment in find_segments(series(values, driven=told))] == ["", DRIVEN, STEP]


@pytest.mark.parametrize("decimals", [1, 12], ids=["ties", "none equal"])
def test_the_cost_of_a_segment_is_that_of_ruptures_to_the_last_bit(decimals):
    values = np.random.default_rng(5).normal(size=40).round(decimals)
    ours, theirs = AbsoluteCost().fit(values), CostL1().fit(values)
    for start in range(39):
        for end in range(start + 2, 41):
            assert ours.error(start, end) == theirs.error(start, end), (start, end)
