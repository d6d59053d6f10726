"""A table that is missing or damaged: named, with what makes a resumed run measure its blocks again."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from run_samples import begun, chain_block

from specbench.harness.metrics.run_results import results, results_of
from specbench.harness.store.run_directory import RunDirectory

BLOCKS = {("no-spec", 0), ("eagle:k=4", 0)}


def measured(run: RunDirectory) -> None:
    for arm, repeat in sorted(BLOCKS - run.done_blocks()):
        run.append(arm, repeat, **chain_block([1, 2]))


@pytest.fixture
def unfinished(tmp_path) -> RunDirectory:
    run = RunDirectory.create(tmp_path, "test", begun("no-spec", "eagle:k=4"))
    measured(run)
    return run


@pytest.fixture
def finished(unfinished) -> RunDirectory:
    unfinished.finish(results(unfinished.frames()))
    return RunDirectory.open(unfinished.path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:50])


LOSSES = {"missing": Path.unlink, "damaged": cut}


def refused(path: Path, name: str, loss: str, requests: str) -> None:
    """Reading the run says that the file `name` has the loss, and to remove the requests."""
    words = re.escape(f"{name}: {loss}") + f".*remove {re.escape(requests)} and resume the run"
    for read in (RunDirectory.check_tables, RunDirectory.frames, lambda run: run.finish(None)):
        with pytest.raises(ValueError, match=words):
            read(RunDirectory.open(path))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["steps", "phases", "counters"])
def test_a_table_of_a_finished_run(finished, name, loss):
    path = finished.path
    whole = finished.frames()
    LOSSES[loss](path / f"{name}.parquet")
    refused(path, f"{name}.parquet", loss, str(path / "requests.parquet"))
    with pytest.raises(ValueError, match=loss):
        results_of(RunDirectory.open(path))

    (path / "requests.parquet").unlink()  # as advised
    again = RunDirectory.open(path)
    assert again.done_blocks() == set()
    again.check_tables()
    measured(again)
    again.finish(None)
    frames = RunDirectory.open(path).frames()
    assert all(getattr(frames, name).equals(getattr(whole, name)) for name in ("requests", "steps", "phases"))


def test_damaged_requests_of_a_finished_run(finished):
    cut(finished.path / "requests.parquet")
    refused(finished.path, "requests.parquet", "damaged", "it")


@pytest.mark.parametrize("loss", LOSSES)
def test_a_part(unfinished, loss):
    steps, _ = sorted((unfinished.path / "parts").glob("steps-*.parquet"))
    requests = steps.with_name(steps.name.replace("steps", "requests"))
    LOSSES[loss](steps)
    refused(unfinished.path, steps.name, loss, str(requests))
    requests.unlink()
    assert len(RunDirectory.open(unfinished.path).done_blocks()) == 1
    unfinished.check_tables()


def test_damaged_requests_of_a_part(unfinished):
    part, _ = sorted((unfinished.path / "parts").glob("requests-*.parquet"))
    cut(part)
    refused(unfinished.path, part.name, "damaged", "it")
    part.unlink()
    assert len(RunDirectory.open(unfinished.path).done_blocks()) == 1


def test_a_run_that_recorded_no_such_table(finished):
    """As those from before counters were stored."""
    path = finished.path / "counters.parquet"
    path.unlink()
    files = {name: digest for name, digest in finished.record.files.items() if name != path.name}
    finished.put(replace(finished.record, files=files))
    assert len(RunDirectory.open(finished.path).frames().counters) == 0


def test_a_record_without_a_list_of_files(finished):
    finished.put(replace(finished.record, files={}))
    (finished.path / "counters.parquet").unlink()
    RunDirectory.open(finished.path).check_tables()
    (finished.path / "steps.parquet").unlink()
    refused(finished.path, "steps.parquet", "missing", str(finished.path / "requests.parquet"))
