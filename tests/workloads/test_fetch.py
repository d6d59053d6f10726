"""``specbench fetch``: what it prints and what it does not import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from specbench.harness.cli.fetch import fetch
from specbench.workloads.assets.table import ASSETS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    app = typer.Typer()
    app.command()(fetch)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_list_names_every_asset(run):
    result = run("--list")
    assert result.exit_code == 0
    assert all(name in result.stdout for name in ASSETS)
    assert "and 21 more" in result.stdout


def test_a_path_is_checked_and_hashed(run, tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text("{}\n")
    result = run(str(file))
    assert result.exit_code == 0
    assert result.stdout.startswith(f"a.jsonl: {file} (file:{file}, sha256 ")


def test_bad_names_are_value_errors(run):
    for arguments, message in (((), "needs a name"), (("nonsense",), "'nonsense' is not known")):
        result = run(*arguments)
        assert isinstance(result.exception, ValueError) and message in str(result.exception)


def test_help_has_examples(run):
    assert "specbench fetch smollm2-135m-instruct sharegpt gsm8k" in run("--help").stdout


def test_import_is_light():
    code = "import sys, specbench.harness.cli.fetch; print({'torch', 'transformers', 'gguf'} & set(sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(ROOT / ".ns")}, check=True
    )
    assert found.stdout.strip() == "set()"
