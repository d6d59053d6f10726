"""Ctrl-C and kill in the middle of a certificate, in real processes: it goes on and ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specbench.harness.cli.main import app

ROOT = Path(__file__).parents[3]
WORDS = (
    "certify -s ngram:k=2 -s eagle:k=2,head=random --load-format dummy --model toy --dtype bfloat16 --device cpu "
    "--dataset-name random --num-prompts 4 --output-len 24 --max-model-len 1100 --num-seeds 50"
).split()


def _interrupted(words: list[str], number: signal.Signals, pattern: str) -> tuple[int, str]:
    """Runs the command and signals it when a line of its progress matches; exit code and stderr."""
    process = subprocess.Popen(
        [sys.executable, "-m", "specbench.harness", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".ns"), "OMP_NUM_THREADS": "1"},
        # A test run in the background may have SIGINT ignored, which children inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if re.search(pattern, line):
            process.send_signal(number)
            break
    rest = process.communicate(timeout=180)[1]
    return process.returncode, "".join(lines) + rest


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
    found, err = _interrupted([*WORDS, "--output-dir", str(runs)], number, r" ngram:k=2, 50 seeds at")
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
