"""The sentence that a sweep begins with, and what legends and colours leave out."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from sweep_samples import stored_sweep

from specbench.harness.judge.sweep_figures import sweep_record
from specbench.harness.store.crossover_file import CrossoverArm
from specbench.harness.store.sweep_directory import SweepDirectory
from specbench.reports.charts.chart import Axis, Chart, Styles, phase_styles
from specbench.reports.experiments.crossover_answer import crossover_answer
from specbench.reports.experiments.crossover_brief import crossover_brief
from specbench.reports.experiments.crossover_table import display_names, ratio_text


def test_the_fastest_arm_at_each_load_and_where_it_ends(tmp_path):
    record = sweep_record(SweepDirectory.open(stored_sweep(tmp_path).path))
    names = display_names(record)
    said = crossover_answer(record, names)
    last = ""
    for load in record.loads:
        ratios = {a.label: c.tpot for a in record.arms for c in a.points if c.load == load and c.tpot}
        best = max(ratios, key=lambda label: ratios[label].ratio)
        if ratios[best].ratio >= 1:
            again = best == last
            told = f"{ratio_text(ratios[best])} at {'' if again else 'concurrency '}{load}"
            assert (f", {told}" if again else f"{names[best]} {told}") in said
            last = best
        else:
            assert f"no-spec (the next is {names[best]}, {ratio_text(ratios[best])}) at concurrency {load}" in said
    assert "Break-even concurrency: " in said and "without an interval" not in said


def _of_one_block(arm: CrossoverArm) -> CrossoverArm:
    cells = [replace(cell, tpot=cell.tpot and replace(cell.tpot, low=None, high=None)) for cell in arm.points]
    return replace(arm, points=tuple(cells))


def test_factors_of_one_block_are_not_headlined_as_if_they_were_certain(tmp_path):
    record = sweep_record(SweepDirectory.open(stored_sweep(tmp_path).path))
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
