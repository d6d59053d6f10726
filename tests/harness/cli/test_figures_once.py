"""The figures of a run are derived once, however many reports are made of it."""

from __future__ import annotations

from specbench.harness.metrics import run_results
from specbench.harness.store import block_store
from specbench.harness.store.run_directory import RunDirectory


def test_a_run_derives_its_figures_once_and_reads_its_tables_once(cli, toy, only_run, monkeypatch):
    derived, read = [], []
    measure_blocks, read_parquet = run_results.measure_blocks, block_store.read_parquet
    monkeypatch.setattr(run_results, "measure_blocks", lambda frames: derived.append(1) or measure_blocks(frames))
    monkeypatch.setattr(block_store, "read_parquet", lambda path: read.append(path) or read_parquet(path))
    result = cli(*toy, "-s", "no-spec", "-s", "ngram:k=2", "--num-repeats", 2)
    assert result.exit_code == 0, result.output
    assert len(derived) == 1, "closed, reported and printed"
    assert len(read) == len(set(read)) == 4 * 4, "the parts of four blocks"


def test_what_is_shown_later_is_what_was_stored(cli, toy, only_run, monkeypatch):
    cli(*toy, "-s", "no-spec")
    stored = only_run().record.results
    assert stored is not None and stored == run_results.results(only_run().frames())

    def derive(frames):
        raise AssertionError("derived again")

    monkeypatch.setattr(run_results, "measure_blocks", derive)
    assert run_results.results_of(RunDirectory.open(only_run().path)) == stored
    assert cli("show", only_run().path).exit_code == 0
