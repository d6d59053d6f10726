"""The workflow that is ready to copy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

TEMPLATE = Path(__file__).resolve().parents[2] / "reports" / "templates" / "specbench.yml"


@pytest.fixture(scope="module")
def text():
    return TEMPLATE.read_text()


def test_it_is_yaml_with_two_jobs(text):
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load(text)
    assert set(found["jobs"]) == {"gate", "comment"}
    assert found["permissions"] == {"contents": "read"}
    assert found["jobs"]["comment"]["permissions"] == {"pull-requests": "write"}
    assert not any("checkout" in step.get("uses", "") for step in found["jobs"]["comment"]["steps"])


def test_no_text_of_a_pull_request_is_run(text):
    """Expressions inside `run` would be pasted into a shell."""
    for block in re.findall(r"run: \|\n((?: {10,}.*\n)+)", text):
        assert "${{" not in block


def test_its_options_exist(text):
    from specbench.harness.cli.main import app

    command = typer.main.get_command(app)
    known = {word for name in ("run", "gate") for p in command.commands[name].params for word in p.opts}
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    used = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", "\n".join(lines)))
    assert used - {"--detach", "--quiet"} <= known
