"""The roofline as a table: every cell by hand, what is unknown said, nothing guessed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from roofline_samples import BASE, CHAIN, FAILED, MACHINE, ideal_arms, roofline_run
from site_samples import EAGLE
from sweep_samples import LOADS, sample_record, stored_sweep

from specbench.harness.roofline.of_run import INSTRUMENTED, ideal_arms_of
from specbench.harness.store.codec import read_document
from specbench.harness.store.crossover_file import RECORD_FILE, SCHEMA, Crossover
from specbench.harness.store.files import json_text
from specbench.reports.markdown import markdown_result
from specbench.reports.run.roofline_table import roofline_table, roofline_tables
from specbench.reports.terminal import plain_result


@pytest.fixture
def run(tmp_path):
    return roofline_run(tmp_path)


def cells(table) -> dict[str, dict[str, str]]:
    return {row[0]: dict(zip(table.headers, row, strict=True)) for row in table.rows}


def test_cells_by_hand(run):
    table = roofline_table(ideal_arms(run, MACHINE), MACHINE)
    base, chain, failed = (cells(table)[label] for label in (BASE, CHAIN, FAILED))
    assert chain["batch"] == "2" and chain["context"] == "13" and chain["tokens/round"] == "2.00"
    assert chain["accepted by position"] == "0.75 0.25"
    assert (chain["ideal ms"], chain["measured ms"], chain["efficiency"]) == ("5.418", "15.00", "36%")
    assert chain["verify ms"] == "3.650 / 7.500" and chain["draft first ms"] == "0.4300 / 1.500"
    assert chain["accept ms"] == "1.024 / -" and chain["other ms"] == "6.000"
    assert (chain["ideal speed-up"], chain["measured speed-up"]) == ("1.66x", "1.33x")
    assert base["draft first ms"] == "-" and base["ideal speed-up"] == base["measured speed-up"] == "1.00x"
    assert set(list(failed.values())[1:]) == {"-", "unknown"} and failed["ideal ms"] == "unknown"


def test_notes_say_how_the_limits_were_got_and_what_is_left_out(run):
    notes = roofline_table(ideal_arms(run, MACHINE), MACHINE).notes
    assert notes[0] == f"machine: {MACHINE.describe()}" and "given" in notes[0]
    assert any("leaves out" in note for note in notes)
    assert notes[-1] == f"{FAILED}: no ideal: no decode round was measured"


def test_the_bytes_of_experts_stand_beside_the_time(run):
    arms = [replace(arm, expert_bytes=1.5e9, measured=replace(arm.measured, experts=3.14)) if arm.measured else arm
            for arm in ideal_arms(run, MACHINE)]  # fmt: skip
    notes = roofline_table(arms, MACHINE).notes
    assert f"{CHAIN}: its target reads 3.1 experts per layer, 1.5 GB per pass" in notes
    assert not any("experts" in note for note in roofline_table(ideal_arms(run, MACHINE), MACHINE).notes)


def test_an_older_run_says_unknown(run):
    older = replace(run.record, forwards={})
    table = roofline_table(ideal_arms_of(older, run.frames(), MACHINE), MACHINE)
    row = cells(table)[CHAIN]
    assert row["ideal ms"] == "unknown" and row["efficiency"] == row["ideal speed-up"] == "-"
    assert row["measured ms"] == "15.00" and row["measured speed-up"] == "1.33x"
    assert row["verify ms"] == "- / 7.500"
    assert any(note.startswith(f"{CHAIN}: no ideal: run.json does not record") for note in table.notes)


def test_shares_of_an_instrumented_capture_are_marked(run):
    arms = ideal_arms(run, MACHINE)
    assert arms[1].measured is not None
    shares = replace(arms[1], measured=replace(arms[1].measured, source=INSTRUMENTED))
    table = roofline_table([shares], MACHINE)
    assert cells(table)[CHAIN]["verify ms"] == "3.650 / ~7.500" and cells(table)[CHAIN]["other ms"] == "~6.000"
    assert any("proportions of an instrumented capture" in note for note in table.notes)


def test_it_prints(run):
    table = roofline_table(ideal_arms(run, MACHINE), MACHINE, "Against the roofline")
    for text in (plain_result(table), markdown_result(table)):
        assert "Against the roofline" in text and CHAIN in text


def test_a_crossover_that_was_read_is_written_with_the_same_bytes():
    files = list((Path(__file__).parents[2] / "benchmarks" / "runs" / "h200").glob(f"*/{RECORD_FILE}"))
    assert files
    for file in files:
        written = json_text(read_document(file, Crossover, SCHEMA))
        # Marks of rows, limits of goodput, those of a round and experts were not stored yet; nothing else is added, and
        # nothing lost.
        later = r',\n +"(doubts": \[\]|goodput": null|slos": {}|limits_ms": {}|experts": null|expert_bytes": null)'
        assert re.sub(later, "", written) == file.read_text()


def test_a_table_for_each_load_of_a_sweep(tmp_path):
    """From the stored record alone, which reads as it was written."""
    sweep = stored_sweep(tmp_path)
    record = read_document(sweep.path / RECORD_FILE, Crossover, SCHEMA)
    assert record == sample_record(sweep)
    names = {arm.label: arm.label.upper() for arm in record.arms}
    tables = roofline_tables(record, names)
    assert [table.title for table in tables] == [f"Against the roofline, concurrency {load}" for load in LOADS]
    row = dict(zip(tables[1].headers, tables[1].rows[1], strict=True))
    assert row["strategy"] == names[EAGLE] and row["efficiency"] == "50%" and row["ideal speed-up"] == "1.06x"
    assert any(note.startswith("Up to 181 rows per round") for note in tables[0].notes)
    assert roofline_tables(replace(record, machine=None), names) == []
