"""Ctrl-C and kill in the middle of a certificate, in real processes: it goes on and ends as if nothing had happened."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from toy.interrupts import interrupted
from typer.testing import CliRunner

from specbench.harness.cli.main import app

WORDS = (
    "certify -s ngram:k=2 -s eagle:k=2,head=random --load-format dummy --model toy --dtype bfloat16 --device cpu "
    "--dataset-name random --num-prompts 4 --output-len 8 --max-model-len 1100 --num-seeds 50"
).split()


def _certificate(folder: Path) -> dict:
    (path,) = folder.iterdir()
    return json.loads((path / "certificate.json").read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("whole")
    result = CliRunner().invoke(app, [*WORDS, "--output-dir", str(folder)], prog_name="specbench")
    assert result.exit_code in (0, 6), result.output
    return _certificate(folder)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_an_interrupted_certificate_ends_as_a_whole_one(whole, tmp_path, number, code):
    runs = tmp_path / "runs"
    found, _, err = interrupted([*WORDS, "--output-dir", runs], r" ngram:k=2, 50 seeds at", number)
    assert found == code and "Traceback" not in err, err
    part = _certificate(runs)
    assert part["status"] == "running" and 0 < len(part["certificates"]) < len(whole["certificates"])
    (path,) = runs.iterdir()
    if number == signal.SIGINT:
        assert err.rstrip().endswith(f"specbench certify --run {path}")
    again = CliRunner().invoke(app, ["certify", "--run", str(path)], prog_name="specbench")
    assert again.exit_code == (0 if all(row["ok"] for row in whole["certificates"]) else 6)
    kept = [row["arm"] for row in part["certificates"]]
    assert not any(f"{arm}, temperature 0:" in again.stderr for arm in kept[:1]), "judged arms are not judged again"
    assert _certificate(runs) == whole
