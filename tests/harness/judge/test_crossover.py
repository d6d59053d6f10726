"""Crossing points against curves that are known, and their intervals against experiments with a known truth."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from machine_pace import slower
from run_samples import frame, request

from specbench.harness.judge.crossover_record import crossover_record
from specbench.harness.judge.crossover_samples import LoadPoint, paired_blocks, point_blocks
from specbench.harness.metrics.speedup import speedup
from specbench.harness.spec.arm import ArmSetup
from specbench.harness.stats.crossover import (
    PairedBlocks,
    crossing_of,
    crossings,
    draw,
    log_tpot,
    once,
    ratio_of,
    shares_best,
)
from specbench.harness.store.arm_record import ArmRecord
from specbench.reports.experiments.crossover_table import crossover_tables, display_names

LOADS = [1, 2, 4, 8, 16, 32]


def pairs_of(log_ratio_BP: np.ndarray) -> PairedBlocks:
    ones = np.ones_like(log_ratio_BP)
    return PairedBlocks(
        log_tpot_BP=log_ratio_BP,
        log_tps_B=np.zeros(len(ones)),
        tokens_BP=(ones, ones),
        service_ns_BP=(ones, ones),
        load=1,
    )


@pytest.mark.parametrize(
    ("speedups", "expected"),
    [
        ([2.0, 1.0 + 1e-9], math.inf),
        ([2.0, 0.5], 4 ** (2 / 3)),
        ([0.9, 0.8], 0.0),
        ([0.9, 1.2], math.inf),
        ([1.5, 0.9, 1.1, 0.9], 4 * math.sqrt(2)),  # a dip that is not for good is none
    ],
)
def test_crossing_points(speedups, expected):
    loads = [1, 4] if len(speedups) == 2 else [1, 2, 4, 8]
    assert crossings(np.log([speedups]), loads)[0] == pytest.approx(expected)


def test_one_load_is_below_or_beyond():
    assert crossings(np.log([[0.5], [2.0]]), [8]).tolist() == [0.0, math.inf]


def simulated(rng, num_blocks: int, num_prompts: int, sd: tuple[float, float, float], slope: float, crossing: float):
    """An arm at every load: sd of prompts (the same at all loads), of blocks and of single requests."""
    prompt = rng.normal(0, sd[0], num_prompts)
    return {
        load: slope * math.log2(crossing / load)
        + prompt
        + rng.normal(0, sd[1], (num_blocks, 1))
        + rng.normal(0, sd[2], (num_blocks, num_prompts))
        for load in LOADS
    }


def interval_of(samples: dict[int, np.ndarray], num_resamples: int = 400):
    num_blocks, num_prompts = samples[1].shape
    draws = draw({str(load): num_blocks for load in LOADS}, num_prompts, num_resamples)
    pairs = {load: pairs_of(values) for load, values in samples.items()}
    own = np.array([log_tpot(pairs[load], *once(num_blocks, num_prompts))[0] for load in LOADS])
    found = [log_tpot(pairs[load], draws.blocks_RB[str(load)], draws.prompts_RP) for load in LOADS]
    return crossing_of(own, LOADS, np.stack(found, axis=1))


def ends(found):
    """low, value, high as numbers: 0 below, infinity beyond."""
    known = {"below": 0.0, "beyond": math.inf}
    return [known.get(getattr(found, f"{n}_side"), getattr(found, n)) for n in ("low", "value", "high")]


@pytest.mark.parametrize(
    ("num_blocks", "num_prompts", "sd"),
    [(5, 64, (0.2, 0.005, 0.05)), (3, 20, (0.2, 0.005, 0.05)), (6, 20, (0.1, 0.02, 0.05))],
)
def test_the_interval_holds_the_truth_in_95_of_100_experiments(num_blocks, num_prompts, sd):
    slope, crossing, num_experiments = 0.15, 10.0, 250
    truth = crossings(np.array([[slope * math.log2(crossing / load) for load in LOADS]]), LOADS)[0]
    hits = 0
    for seed in range(num_experiments):
        samples = simulated(np.random.default_rng(seed), num_blocks, num_prompts, sd, slope, crossing)
        found = interval_of(samples)
        low, _, high = ends(found)
        hits += low <= truth <= high
    assert 0.91 <= hits / num_experiments <= 0.985, hits


def test_a_crossing_near_the_end_is_censored_openly():
    samples = simulated(np.random.default_rng(1), 5, 30, (0.3, 0.01, 0.05), 0.15, 30.0)
    found = interval_of(samples)
    assert found.low is not None and 8 < found.low < 32 and found.high is None and found.share_below == 0
    assert 0.2 < found.share_beyond < 0.8
    assert (found.value_side, found.high_side, found.low_side) == ("between", "beyond", "between")


def test_curves_that_never_cross_are_beyond_and_below():
    rng = np.random.default_rng(2)
    above, below = (simulated(rng, 5, 30, (0.05, 0.01, 0.05), 0.01, at) for at in (2.0**30, 2.0**-30))
    found = interval_of(above)
    assert (*ends(found), found.share_beyond) == (math.inf,) * 3 + (1.0,)
    found = interval_of(below)
    assert (*ends(found), found.share_below) == (0.0, 0.0, 0.0, 1.0)


def test_without_resamples_there_is_no_interval():
    found = crossing_of(np.log([2.0, 0.5]), [1, 4], None)
    assert (found.low, found.low_side, found.high, found.high_side) == (None,) * 4 and found.value == pytest.approx(
        4 ** (2 / 3)
    )
    assert ratio_of(0.0, None).low is None


def test_prompts_are_drawn_once_for_all_loads_and_arms():
    """Two loads whose prompts differ alike: their difference has no spread, which drawing apart would give it."""
    rng = np.random.default_rng(3)
    prompt = rng.normal(0, 0.5, 40)
    one, other = (pairs_of(np.tile(prompt + shift, (4, 1))) for shift in (0.0, -0.1))
    draws = draw({"a": 4, "b": 4}, 40)
    first = log_tpot(one, draws.blocks_RB["a"], draws.prompts_RP)
    second = log_tpot(other, draws.blocks_RB["b"], draws.prompts_RP)
    assert np.std(first) == pytest.approx(0.5 / math.sqrt(40), rel=0.2) and np.ptp(first - second) < 1e-12


def test_the_spread_of_few_blocks_is_that_of_their_mean():
    """Blocks alone, no prompts' spread: sd over sqrt(n), with n - 1 in the sd, which n of n draws would understate."""
    values = np.array([0.0, 0.1, 0.2])
    draws = draw({"a": 3}, 8)
    found = log_tpot(pairs_of(np.tile(values[:, None], (1, 8))), draws.blocks_RB["a"], draws.prompts_RP)
    assert np.std(found) == pytest.approx(values.std(ddof=1) / math.sqrt(3), rel=0.05)


def test_shares_of_the_best():
    log_RA = np.array([[0.1, 0.2], [0.3, 0.2], [0.0, 0.5], [0.1, np.nan]])
    assert shares_best(log_RA).tolist() == pytest.approx([1 / 3, 2 / 3])


def requests_of(tpot_ms: dict[str, float], num_blocks: int, num_prompts: int, rng) -> pd.DataFrame:
    """Requests one after the other, with the given TPOT of each arm and noise."""
    found = []
    for arm, own in tpot_ms.items():
        for block in range(num_blocks):
            now, rows = 0.0, []
            for n in range(num_prompts):
                first, last = now + 5, now + 5 + 10 * own * math.exp(rng.normal(0, 0.05))
                rows.append(request(n, submit_ms=now, first_ms=first, last_ms=last, num_output_tokens=11))
                now = last
            found.append(frame("requests", rows, arm, block))
    return pd.concat(found, ignore_index=True)


def point(load: int, requests: pd.DataFrame, run_id: str = "") -> LoadPoint:
    labels = list(dict.fromkeys(requests["arm"]))
    arms = tuple(ArmRecord(label=label, strategy=label.split(":")[0], status="ok") for label in labels)
    return LoadPoint(load=load, run_id=run_id or f"run-{load}", arms=arms, requests=requests)


def test_the_point_is_what_every_other_table_says():
    requests = requests_of({"no-spec": 10.0, "eagle": 6.0}, 3, 7, np.random.default_rng(5))
    requests = requests[~((requests["arm"] == "eagle") & (requests["repeat"] == 1) & (requests["prompt_id"] == "p3"))]
    prompts = sorted(set(requests["prompt_id"]))
    arms = point_blocks(point(1, requests), prompts).arms
    pairs = paired_blocks(arms["eagle"], arms["no-spec"], 1)
    expected = speedup("eagle", "no-spec", {("no-spec", 0): {"tps": 1.0}, ("eagle", 0): {"tps": 1.0}}, requests)
    assert np.exp(log_tpot(pairs, *once(3, len(prompts))))[0] == pytest.approx(expected.tpot_ratio)


def test_the_runs_of_a_prompt_pair_one_by_one():
    """The same prompt twice in a block, one of them not served by the arm: the other still pairs with its own."""
    requests = requests_of({"no-spec": 10.0, "eagle": 6.0}, 2, 6, np.random.default_rng(11))
    requests["prompt_id"] = requests["request_id"].map(lambda n: f"p{n % 3}")
    cut = (requests["arm"] == "eagle") & (requests["request_id"] == 1) & (requests["repeat"] == 0)
    requests.loc[cut, "finish_reason"] = "abort"
    arms = point_blocks(point(1, requests), ["p0", "p1", "p2"]).arms
    found = log_tpot(paired_blocks(arms["eagle"], arms["no-spec"], 1), *once(2, 3))[0]
    expected = speedup("eagle", "no-spec", {("no-spec", 0): {"tps": 1.0}, ("eagle", 0): {"tps": 1.0}}, requests)
    by_cell = np.log(arms["no-spec"].tpot_ms_B / arms["eagle"].tpot_ms_B)
    assert found == pytest.approx(math.log(expected.tpot_ratio), abs=0.02) and np.isfinite(by_cell).all()


def test_a_record_says_where_each_arm_stops_paying_and_which_is_best():
    rng = np.random.default_rng(6)
    speed = {1: {"k1": 1.5, "k2": 1.9}, 4: {"k1": 1.3, "k2": 1.1}, 16: {"k1": 1.1, "k2": 0.6}}
    points = [
        point(load, requests_of({"no-spec": 10.0, **{arm: 10.0 / s for arm, s in own.items()}}, 4, 12, rng))
        for load, own in speed.items()
    ]
    record = crossover_record(points, {"k1": ("k", 1), "k2": ("k", 2)})
    arms = {arm.label: arm for arm in record.arms}
    crossing = arms["k2"].crossing["tpot"]
    assert 4 < crossing.low < crossing.value < crossing.high < 16 and crossing.value_side == "between"
    assert arms["k1"].crossing["tpot"].value_side == "beyond" and arms["no-spec"].crossing["tpot"] is None
    cell = arms["k1"].points[1]
    assert cell.tpot.low < 1.3 < cell.tpot.high and cell.tps.ratio < cell.tpot.ratio
    best = {b.load: (b.label, b.share) for b in record.best if (b.family, b.figure) == ("k", "tpot")}
    assert best == {1: ("k2", 1.0), 4: ("k1", 1.0), 16: ("k1", 1.0)}
    assert "blocks=4, 12 prompts" in record.method and "below 6 blocks" in record.method


@pytest.mark.parametrize(
    ("driven", "is_judged"), [("HTTP", False), ("in process", True), (None, True)], ids=["otherwise", "alike", "untold"]
)
def test_an_arm_that_is_driven_otherwise_has_speed_ups_but_no_break_even(driven, is_judged):
    rng = np.random.default_rng(6)
    points = []
    for load, speed in ((1, 1.5), (4, 1.3), (16, 0.6)):
        own = point(load, requests_of({"no-spec": 10.0, "a": 10.0 / speed}, 2, 5, rng))
        how = {"no-spec": "in process", "a": driven}
        points.append(replace(own, arms=tuple(replace(a, config=ArmSetup(driven=how[a.label])) for a in own.arms)))
    record = crossover_record(points)
    (_, arm) = record.arms
    assert all(cell.tpot for cell in arm.points)
    assert [found is not None for found in arm.crossing.values()] == [is_judged, is_judged, False]
    table = crossover_tables(record, display_names(record))[0]
    (_, row) = table.rows
    said = "no verdict: no-spec was driven in process, a HTTP: a factor between them also reflects how they were driven"
    assert any(said in note for note in table.notes) is not is_judged
    assert (row[0], row[-2] == "no verdict") == (("a", False) if is_judged else ("a (driven differently)", True))


def test_arms_of_another_engine_are_compared_with_its_own_baseline():
    requests = requests_of({"no-spec": 10, "a": 5, "vllm/no-spec": 4, "vllm/a": 3}, 2, 5, np.random.default_rng(6))
    own = point(1, requests)
    arms = (
        replace(a, strategy=a.label.removeprefix("vllm/"), config=ArmSetup(engine=a.label.rpartition("/")[0] or None))
        for a in own.arms
    )
    record = crossover_record([replace(own, arms=tuple(arms))])
    found = {arm.label: cell.tpot and round(cell.tpot.ratio, 1) for arm in record.arms for cell in arm.points}
    assert found == {"no-spec": None, "a": 2.0, "vllm/no-spec": None, "vllm/a": 1.3}
    assert crossover_tables(record, display_names(record))[0].rows[2][1].endswith(" ms")


def test_one_prompt_has_no_interval_anywhere():
    rng = np.random.default_rng(10)
    points = [point(load, requests_of({"no-spec": 10.0, "a": 5.0 * load}, 3, 1, rng)) for load in (1, 4)]
    (_, arm) = crossover_record(points).arms
    assert arm.points[0].tpot.low is None and arm.crossing["tpot"].low_side is None
    assert 1 < arm.crossing["tpot"].value < 4


def test_one_block_has_no_interval_anywhere():
    rng = np.random.default_rng(10)
    points = [point(load, requests_of({"no-spec": 10.0, "a": 5.0 * load}, 1, 12, rng)) for load in (1, 4)]
    record = crossover_record(points)
    (_, arm) = record.arms
    assert [cell.tpot.low for cell in arm.points] == [None, None] == [cell.tps.low for cell in arm.points]
    assert arm.crossing["tpot"].low_side is None and 1 < arm.crossing["tpot"].value < 4
    assert {best.share for best in record.best if best.family == "a"} == {None}
    assert "one block has no interval" in record.method


def test_an_arm_that_failed_at_a_load_has_the_others():
    rng = np.random.default_rng(7)
    points = [point(load, requests_of({"no-spec": 10.0, "a": 5.0 * load}, 2, 5, rng)) for load in (1, 2, 4)]
    failed = points[1].requests
    failed = failed[failed["arm"] != "a"]
    arms = tuple(replace(arm, error="out of memory" if arm.label == "a" else "") for arm in points[1].arms)
    points[1] = LoadPoint(load=2, run_id="run-2", arms=arms, requests=failed)
    (_, arm) = crossover_record(points).arms
    assert [bool(cell.tpot) for cell in arm.points] == [True, False, True]
    assert arm.points[1].error == "out of memory" and 1 < arm.crossing["tpot"].value < 4


def test_nothing_measured_makes_an_empty_record():
    requests = requests_of({"no-spec": 10.0}, 1, 1, np.random.default_rng(8))
    empty = LoadPoint(load=1, run_id="r", arms=point(1, requests).arms, requests=requests.iloc[:0])
    (arm,) = crossover_record([empty]).arms
    assert arm.points[0].num_blocks == 0 and arm.crossing == {"tpot": None, "tps": None, "ideal": None}
    assert crossover_record([]).arms == ()


@pytest.mark.timed
def test_a_large_sweep_takes_less_than_five_seconds():
    """8 loads, 6 arms, 5 blocks, 64 prompts, 2,000 resamples."""
    rng = np.random.default_rng(9)
    arms = {"no-spec": 10.0, **{f"a{n}": 5.0 + n for n in range(6)}}
    points = [point(2**n, requests_of(arms, 5, 64, rng)) for n in range(8)]
    begun = time.process_time()
    record = crossover_record(points)
    took_s = time.process_time() - begun
    assert took_s < 5 * slower() and len(record.arms) == 7
