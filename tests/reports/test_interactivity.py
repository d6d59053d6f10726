"""TPS per user against TPS of all: points as measured, the table between them and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sweep_samples import LOADS, sample_record, stored_sweep

from specbench.reports.charts.chart import Styles
from specbench.reports.experiments.crossover_table import crossover_tables, display_names
from specbench.reports.experiments.interactivity import (
    at,
    interactivity_chart,
    interactivity_frame,
    interactivity_table,
    levels,
)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return replace(sample_record(stored_sweep(tmp_path_factory.mktemp("sweep"))), hardware="1x NVIDIA H200, a CPU")


def test_points_are_the_medians_of_the_cells(record):
    names = display_names(record)
    frame = interactivity_frame(record, names)
    for arm in record.arms:
        own = frame[frame["series"] == names[arm.label]]
        assert list(own["concurrency"]) == list(LOADS)
        assert list(own["x"]) == pytest.approx([1000 / cell.tpot_ms for cell in arm.points])
        assert list(own["y"]) == [cell.tps_median for cell in arm.points]
    assert set(frame["_near"].dropna()) == set(LOADS)


def test_the_table_interpolates_between_loads_and_leaves_out_the_rest(record):
    names = display_names(record)
    table = interactivity_table(record, names)
    assert table.title == "TPS per GPU at the same interactivity" and table in crossover_tables(record, names)
    wanted = [float(header.split()[0]) for header in table.headers[1:]]
    curves = [sorted((1000 / cell.tpot_ms, cell.tps_median) for cell in arm.points) for arm in record.arms]
    num_dashes = 0
    for n, row in enumerate(table.rows):
        x, y = zip(*curves[n], strict=True)
        for level, cell in zip(wanted, row[1:], strict=True):
            if not x[0] <= level <= x[-1]:
                assert cell == "-"
                num_dashes += 1
                continue
            value, _, factor = cell.partition(" ")
            assert float(value) == pytest.approx(np.interp(level, x, y), rel=1e-3)
            base_x, base_y = zip(*curves[0], strict=True)
            if n and base_x[0] <= level <= base_x[-1]:
                expected = np.interp(level, x, y) / np.interp(level, base_x, base_y)
                assert float(factor.strip("(x)")) == pytest.approx(expected, abs=0.006)
            else:
                assert factor == ""
    assert num_dashes and "outside the measured range" in table.notes[0]


def test_a_line_that_turns_back_gives_the_best_of_its_values():
    curve = [(100.0, 10.0), (50.0, 40.0), (80.0, 30.0)]
    assert at(curve, 75.0) == pytest.approx(40 - 10 * 25 / 30) and at(curve, 90.0) == pytest.approx(16)
    assert at(curve, 50.0) == 40 and at(curve, 49.9) is None and at(curve, 100.1) is None
    assert at([(50.0, 1.0), (50.0, 2.0)], 50.0) == 2


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (20, 300, [25, 50, 100, 250]),
        (60, 230, [100, 150, 200]),
        (101, 103.5, [101, 101.5, 102, 102.5, 103, 103.5]),
        (0.3, 900, [10, 25, 50, 100, 250, 500]),
        (7, 7, []),
    ],
)
def test_levels_are_round_and_few(low, high, found):
    assert levels(low, high) == pytest.approx(found)


def test_one_load_is_no_line(record):
    arms = tuple(replace(arm, points=arm.points[:1]) for arm in record.arms)
    alone, names = replace(record, arms=arms), display_names(record)
    assert interactivity_table(alone, names) is None and interactivity_chart(alone, names, Styles(), "x").frame.empty


def test_where_nobody_knows_how_many_gpus_there_were_it_is_of_all_users(record):
    names = display_names(record)
    for hardware in ("8x NVIDIA H200, a CPU", "a CPU", ""):
        chart = interactivity_chart(replace(record, hardware=hardware), names, Styles(), "x")
        assert chart.y.title == "TPS of all users"


def test_arms_of_another_engine_are_compared_with_its_own_baseline(record):
    """The same arms once more under another engine, at half the total TPS: factors are those of our own."""
    halved = []
    for arm in record.arms:
        points = tuple(replace(cell, tps_median=cell.tps_median / 2) for cell in arm.points)
        halved.append(replace(arm, label=f"vllm/{arm.label}", points=points))
    both = replace(record, arms=(*record.arms, *halved))
    table = interactivity_table(both, {arm.label: arm.label for arm in both.arms})
    factors = [[cell.partition(" ")[2] for cell in row[1:]] for row in table.rows]
    own, theirs = factors[: len(record.arms)], factors[len(record.arms) :]
    assert own == theirs and any(map(any, own)) and f"{record.baseline} of its engine" in table.notes[0]
