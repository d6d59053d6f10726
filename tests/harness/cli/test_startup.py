"""What is asked for often must be quick: nothing heavy is imported for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HEAVY = ("torch", "pandas", "transformers", "numpy", "pyarrow", "matplotlib", "scipy", "triton")
_CODE = """
import sys
from specbench.harness.cli.main import app
try:
    app(sys.argv[1:], prog_name="specbench")
finally:
    print("heavy:", [name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""


def python(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(ROOT / ".ns"), "PATH": "", "COLUMNS": "200"}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment)


@pytest.mark.parametrize(
    "words", ["--help", "--version", "list", "list --format json", "run --help", "show --help", "env --help"]
)
def test_nothing_heavy_is_imported(words):
    done = python("-c", _CODE.format(heavy=HEAVY), *words.split())
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "heavy: []"
    assert done.stdout


def test_the_module_is_the_command():
    done = python("-m", "specbench", "--version")
    assert done.returncode == 0 and done.stdout.startswith("specbench ")
    assert python("-m", "specbench", "run", "--help").stdout.strip().startswith("Usage: specbench run")


def test_a_reader_that_has_seen_enough_is_no_error():
    code = f"{sys.executable} -m specbench list | head -1"
    done = subprocess.run(
        code, shell=True, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT / ".ns"), "PATH": "/usr/bin:/bin"}
    )
    assert done.stdout.startswith("device: ") and done.stderr == ""
