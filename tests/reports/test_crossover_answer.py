"""The sentence that a sweep begins with, and what legends and colours leave out."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from sweep_samples import stored_sweep

from specbench.harness.judge.sweep_figures import sweep_record
from specbench.harness.stats.crossover import Ratio
from specbench.harness.store.crossover_file import CrossoverArm
from specbench.harness.store.sweep_directory import SweepDirectory
from specbench.reports.charts.chart import Axis, Chart, Styles, phase_styles
from specbench.reports.experiments.crossover_answer import crossover_answer
from specbench.reports.experiments.crossover_brief import crossover_brief
from specbench.reports.experiments.crossover_table import display_names, ratio_text


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return sweep_record(SweepDirectory.open(stored_sweep(tmp_path_factory.mktemp("sweep")).path))


RATIOS = {
    "clear": ((1.5, 1.4, 1.6), (1.2, 1.1, 1.3)),
    "close": ((1.5, 1.4, 1.6), (1.45, 1.3, 1.55)),
    "open": ((1.05, 0.95, 1.15), (0.9, 0.8, 0.95)),
    "open below 1": ((0.97, 0.8, 1.18), (0.9, 0.8, 0.95)),
    "clear behind a wide one": ((1.3, 0.9, 1.8), (1.2, 1.1, 1.3)),
    "slower beside an open one": ((0.9, 0.8, 0.95), (0.8, 0.6, 1.2)),
    "below 1 without an interval": ((0.95, None, None), (0.9, 0.8, 1.1)),
    "above 1 without an interval": ((1.3, None, None), (1.2, 1.1, 1.35)),
    "slower": ((0.9, 0.8, 0.95), (0.7, 0.6, 0.8)),
    "even without an interval": ((1.05, None, None), (0.9, None, None)),
    "slower without an interval": ((0.95, None, None), (0.9, None, None)),
}


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("clear", "E 1.50x [1.40, 1.60] at concurrency 8."),
        ("close", "E 1.50x [1.40, 1.60] (H may be as fast) at concurrency 8."),
        ("open", "no arm is clearly faster than no-spec (E 1.05x [0.95, 1.15]) at concurrency 8."),
        ("open below 1", "no arm is clearly faster than no-spec (E 0.97x [0.80, 1.18]) at concurrency 8."),
        ("clear behind a wide one", "H 1.20x [1.10, 1.30] (E may be as fast) at concurrency 8."),
        ("slower beside an open one", "no arm is clearly faster than no-spec (H 0.80x [0.60, 1.20]) at concurrency 8."),
        (
            "below 1 without an interval",
            "no arm is clearly faster than no-spec (H 0.90x [0.80, 1.10]) at concurrency 8.",
        ),
        ("above 1 without an interval", "E 1.30x (H may be as fast) at concurrency 8."),
        ("slower", "no-spec (the next is E, 0.90x [0.80, 0.95]) at concurrency 8."),
        ("even without an interval", "E 1.05x at concurrency 8."),
        ("slower without an interval", "no-spec (the next is E, 0.95x) at concurrency 8."),
    ],
)
def test_the_intervals_decide_which_arm_is_called_the_fastest(record, case, said):
    arms = list(record.arms)
    for n, (ratio, low, high) in enumerate(RATIOS[case], start=1):
        cells = [
            replace(cell, tpot=Ratio(ratio=ratio, low=low, high=high)) for cell in arms[n].points if cell.load == 8
        ]
        arms[n] = replace(arms[n], points=tuple(cells))
    names = dict(zip((arm.label for arm in arms), ("no-spec", "E", "H"), strict=True))
    answer = crossover_answer(replace(record, arms=tuple(arms)), names)
    assert answer.startswith(f"Fastest in TPOT: {said}") and "Break-even concurrency: " in answer


def test_a_name_stands_once_and_many_close_arms_are_counted(record):
    base, eagle, other = record.arms
    same = [replace(other, label=f"{other.label}{n}", points=eagle.points) for n in range(3)]
    names = {base.label: "no-spec", eagle.label: "E"} | {arm.label: arm.label for arm in same}
    answer = crossover_answer(replace(record, arms=(base, eagle, *same)), names)
    first, second = (ratio_text(cell.tpot) for cell in eagle.points[:2])
    close = "(3 other arms may be as fast)"
    assert f"Fastest in TPOT: E {first} {close} at concurrency 1, {second} {close} at 8; no-spec (the next" in answer


def _of_one_block(arm: CrossoverArm) -> CrossoverArm:
    cells = [replace(cell, tpot=cell.tpot and replace(cell.tpot, low=None, high=None)) for cell in arm.points]
    return replace(arm, points=tuple(cells))


def test_factors_of_one_block_are_not_headlined_as_if_they_were_certain(record):
    assert "without an interval" not in crossover_answer(record, display_names(record))
    record = replace(record, arms=tuple(map(_of_one_block, record.arms)))
    assert crossover_answer(record, display_names(record)).endswith(
        "All without an interval, so any of it may be noise: measure again with --num-repeats 2 or more."
    )
    for width in (60, None):
        note = crossover_brief(record, display_names(record), width).notes[0]
        assert note == "Against no-spec of the same run; without intervals: one block has none."


def test_a_strategy_keeps_its_colour_whatever_its_row_is_marked_with():
    styles = Styles()
    plain = styles.of(["ngram", "eagle:k=4"])["eagle:k=4"]
    assert styles.of(["eagle:k=4 (DISTURBED)"])["eagle:k=4 (DISTURBED)"] == plain
    both = styles.of(["eagle:k=4", "eagle:k=4 (synthetic)"])
    assert len(set(map(repr, both.values()))) == 2, "beside each other they differ"


def test_a_part_too_short_to_be_seen_is_not_in_the_legend():
    rows = [("a", "gap", 0.05), ("a", "verify", 200.0), ("b", "gap", 0.04), ("b", "verify", 90.0), ("b", "accept", 9.0)]
    frame = pd.DataFrame(rows, columns=["y", "part", "x"])
    chart = Chart(
        name="p",
        title="t",
        description="d",
        frame=frame,
        x=Axis(title="ms"),
        y=Axis(title="arm", scale="names"),
        marks="bars",
        styles=phase_styles(frame["part"]),
    )
    assert list(chart.legend) == ["verify", "accept"] and chart.too_thin == ["gap"]
