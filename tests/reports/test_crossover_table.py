"""A crossover in words: censored ends, shares, failed cells, loads that are still to come."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from sweep_samples import LOADS, sample_record, stored_sweep

from specbench.harness.stats.crossover import Ratio, break_even
from specbench.harness.store.crossover_file import BestArm
from specbench.reports.document import GAP, column_width, name_width
from specbench.reports.experiments.crossover_brief import crossover_brief
from specbench.reports.experiments.crossover_table import (
    crossing_text,
    crossover_tables,
    display_names,
    interval_text,
    ratio_text,
)
from specbench.reports.experiments.sweep_report import markdown_sweep, write_sweep_reports


def crossing(value, low, high, below=0.0, beyond=0.0):
    return break_even([1, 16], value, None if low is None else (low, high), (below, beyond))


def tables_of(record):
    return crossover_tables(record, display_names(record))


@pytest.mark.parametrize(
    ("found", "text", "interval"),
    [
        (crossing(9.31, 6.1, 12.0), "9.31", "6.1 to 12"),
        (crossing(math.inf, math.inf, math.inf, beyond=0.97), "beyond 16 (97% of resamples)", "beyond 16"),
        (crossing(math.inf, 12.0, math.inf, beyond=0.8), "beyond 16 (80% of resamples)", "12 to beyond 16"),
        (crossing(0.0, 0.0, 1.5, below=0.6), "below 1 (60% of resamples)", "below 1 to 1.5"),
        (crossing(2.0, 0.0, math.inf, 0.3, 0.1), "2", "below 1 to beyond 16"),
        (crossing(math.inf, None, None), "beyond 16", "-"),
        (None, "-", "-"),
    ],
)
def test_crossings_in_words(found, text, interval):
    assert (crossing_text(found), interval_text(found)) == (text, interval)


def test_ratios_in_words():
    assert ratio_text(Ratio(ratio=1.434, low=1.4, high=1.456)) == "1.43x [1.40, 1.46]"
    assert ratio_text(Ratio(ratio=1.434, low=None, high=None)) == "1.43x" and ratio_text(None) == "-"


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return sample_record(stored_sweep(tmp_path_factory.mktemp("sweep")))


def changed(record, **changes):
    """With other figures of the second arm, by load as `b1`."""
    points = tuple(replace(cell, **changes.get(f"b{cell.load}", {})) for cell in record.arms[1].points)
    return replace(record, arms=(record.arms[0], replace(record.arms[1], points=points), *record.arms[2:]))


def test_what_is_missing_is_said(record):
    failed = {"num_blocks": 0, "error": "out of memory", "tpot": None, "tps": None, "ideal": None}
    whole = changed(record, b64=failed, b8={"error": "one block failed"})
    table = tables_of(replace(whole, asked_loads=(1, 8, 64, 256), status="interrupted"))[0]
    row = table.rows[1]
    assert row[3] == "failed" and row[2].endswith("(partly failed)")
    notes = " ".join(table.notes)
    for words in (
        "concurrency 64: out of memory",
        "(status interrupted): figures",
        "not begun: concurrency 256.",
        "k=9",
    ):
        assert words in notes


def test_one_error_at_many_loads_names_them_all(record):
    failed = {"error": "out of memory"}
    notes = tables_of(changed(record, b1=failed, b8=failed, b64=failed))[0].notes
    assert sum(note.endswith("concurrency 1, 8, 64: out of memory") for note in notes) == 1


def test_a_dip_before_the_crossing_is_said(record):
    slower = changed(record, b1={"tpot": Ratio(ratio=0.9, low=0.8, high=0.95)})
    notes = tables_of(slower)[0].notes
    assert any("slower than no-spec also at lower concurrency: 1." in note for note in notes)


def test_best_numbers_of_drafts(record):
    best = BestArm(
        family="eagle", figure="tpot", load=1, label="eagle:k=2", num_drafts=2, num_arms=2, ratio=1.4, share=0.87
    )
    (table,) = [t for t in tables_of(replace(record, best=(best,))) if t.title == "Best number of drafts"]
    assert table.rows[0] == ("eagle", "TPOT", "k=2: 1.40x (87%)", "-", "-")
    assert table.rows[2] == ("eagle", "ideal", "k=1: 3.00x", "k=1: 1.06x", "no speed-up (k=1: 0.38x)")


def test_markdown_holds_the_command_and_escapes_labels(record, tmp_path):
    text = markdown_sweep(record, ["plots/crossover_tpot.png"])
    assert "it's" not in text.split("* command: ")[0] and "&lt;b&gt;" in text and "<img" not in text
    assert "![crossover_tpot](plots/crossover_tpot.png)" in text and "a machine of the tests" in text
    written = write_sweep_reports(tmp_path, record)
    assert [path.name for path in written] == [
        "crossover.json",
        "crossover.md",
        "crossover_tpot.png",
        "crossover_tps.png",
        "interactivity.png",
    ]
    assert all(path.stat().st_size > 5_000 for path in written[2:])


@pytest.mark.parametrize("width", [60, 80, 160, None])
def test_one_table_fits_a_terminal(record, width):
    """With the intervals where they have room; what is left out is named."""
    table = crossover_brief(record, display_names(record), width)
    if width is not None:
        used = name_width(table, width) + sum(column_width(table, i) for i in range(1, len(table.headers)))
        assert used - GAP <= width
    shown = [header for header in table.headers if header.startswith("at ")]
    assert shown == [f"at {load}" for load in LOADS][: len(shown)] and len(table.rows) == 4
    assert (len(shown) < len(LOADS)) == any(note.startswith("not shown here: at ") for note in table.notes)
    assert ("~" in table.notes[0]) == (width in (60, 80))
    eagle = table.rows[1]
    assert eagle[1].startswith("20.7 [") and ("[" in eagle[2]) == (width in (160, None))


def test_marks_of_the_machine_are_one_line(record):
    busy = {f"b{load}": {"doubts": (f"DISTURBED: load {load}",)} for load in LOADS}
    notes = tables_of(changed(record, **busy))[0].notes
    (line,) = [note for note in notes if "DISTURBED: " in note]
    assert line == f"DISTURBED: {record.arms[1].label} at concurrency 1, 8, 64 (the first: load 1)"


def test_a_picture_that_is_no_longer_true_is_removed(record, tmp_path):
    write_sweep_reports(tmp_path, record)
    write_sweep_reports(tmp_path, replace(record, arms=()))
    assert list((tmp_path / "plots").iterdir()) == []
