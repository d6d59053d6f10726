"""Logs of engines: their ends go to the run directory, without secrets, and errors name them there."""

from __future__ import annotations

import pytest

from specbench.harness.run.logs import MOST, Logs

LABELS = ["no-spec", "vllm/eagle:k=4,head=/x"]


@pytest.fixture
def logs(tmp_path, monkeypatch) -> Logs:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "run").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return Logs(LABELS)


def test_the_end_of_a_long_log_is_kept_from_the_start_of_a_line(logs, tmp_path):
    log = logs.path(LABELS[1])
    log.write_text("".join(f"line {n:09d}\n" for n in range(100_000)))
    assert logs.keep(LABELS[1]) is None, "there is no run directory yet"
    logs.keep_in(tmp_path / "run")
    kept = logs.keep(LABELS[1])
    assert kept == tmp_path / "run" / "logs" / "2-vllm-eagle-k=4-head=-x.log"
    lines = kept.read_text().splitlines()
    assert MOST - 20 < kept.stat().st_size <= MOST and lines[-1] == "line 000099999"
    assert lines == [f"line {n:09d}" for n in range(100_000 - len(lines), 100_000)]
    assert logs.keep(LABELS[0]) is None, "served by no program"
    logs.close()
    assert list((tmp_path / "temporary").iterdir()) == []


def test_an_error_names_the_copy(logs, tmp_path):
    log = logs.path("no-spec")
    log.write_text("Error: no room\n")
    error = RuntimeError(f"Error: no room (log: {log})")
    logs.explain("no-spec", error)
    assert str(log) in str(error), "the only one that there is"
    logs.keep_in(tmp_path / "run")
    logs.explain("no-spec", error)
    assert str(error) == f"Error: no room (log: {tmp_path}/run/logs/1-no-spec.log)"


def test_secrets_are_masked(logs, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_very_private")
    logs.path("no-spec").write_text("got 'hf_very_private'\nMY_API_KEY=sk-123\nmax_tokens=8\n")
    logs.keep_in(tmp_path / "run")
    text = logs.keep("no-spec").read_text()
    assert text == "got '[redacted]'\nMY_API_KEY=[redacted]\nmax_tokens=8\n"


def test_a_run_directory_that_is_gone_is_not_made_again(logs, tmp_path):
    log = logs.path("no-spec")
    log.write_text("words\n")
    logs.keep_in(tmp_path / "gone")
    logs.close()
    assert not (tmp_path / "gone").exists() and log.read_text() == "words\n"
