"""What is asked for often must be quick: nothing heavy is imported for it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from compare_samples import Machine, make_run

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


@pytest.mark.parametrize(("closed", "code"), [("2>&-", 2), ("1>&-", 2), ("0<&- 1>&- 2>&-", 2)])
def test_streams_that_are_closed_are_as_good_as_dev_null(closed, code):
    """As daemons start their jobs: an error was none of ours, and a run measured nothing."""
    words = [sys.executable, "-m", "specbench", "show", "nowhere"]
    environment = {"PYTHONPATH": str(ROOT / ".ns"), "COLUMNS": "200"}
    done = subprocess.run(f"{shlex.join(words)} {closed}", shell=True, capture_output=True, text=True, env=environment)
    assert done.returncode == code and ("nowhere: not a run" in done.stderr) is ("2>&-" not in closed)


def test_an_encoding_that_lacks_a_character_stops_no_output(tmp_path):
    run = make_run(tmp_path / "run", Machine(num_prompts=3, num_rounds=4, num_repeats=2))
    environment = {"PYTHONPATH": str(ROOT / ".ns"), "COLUMNS": "200", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "specbench", "show", run], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0 and r"\xb1" in done.stdout and "all of it: specbench show" in done.stdout, done.stderr


@pytest.mark.parametrize("command", ["list", "told"])
def test_a_reader_that_has_seen_enough_is_no_error(command):
    """It closes the pipe before `list` prints, or after the first of two lines, with the second in Python's buffer."""
    code = (
        "import os, sys\n"
        "from specbench.harness.cli import main\n"
        "reader, writer = os.pipe()\n"
        "os.dup2(writer, 1)\n"
        "os.close(writer)\n"
        "def told(prog_name):\n"
        "    print('seen', flush=True)\n"
        "    os.close(reader)\n"
        "    print('not wanted')\n"
        "if sys.argv[1] == 'told':\n"
        "    main.app = told\n"
        "else:\n"
        "    os.close(reader)\n"
        "main.main()\n"
    )
    environment = {"PYTHONPATH": str(ROOT / ".ns"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code, command], stderr=subprocess.PIPE, text=True, env=environment)
    assert done.returncode == (1 if command == "list" else 0) and done.stderr == ""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("module", ["typer", "specbench.harness.cli.run", "rich"])
def test_a_signal_while_it_starts_is_no_traceback(tmp_path, module, number):
    """The signal comes while `module` is imported, by a finder that sends it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        f"            os.kill(os.getpid(), signal.{number})\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT / '.ns'}", "PATH": ""}
    command = [sys.executable, "-m", "specbench", "list"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 130 and done.stderr == "specbench: interrupted\n", done.stderr


def test_importing_the_package_loads_nothing_of_it():
    """So that the command can be interrupted from its first line on; names come when they are asked for."""
    code = (
        "import sys, specbench; assert not [m for m in sys.modules if m.startswith('specbench.')]; specbench.RunOptions"
    )
    assert (
        python(
            "-c", code + "; assert set(specbench.__all__) == {n for n in specbench.__all__ if getattr(specbench, n)}"
        ).returncode
        == 0
    )


def test_help_fills_the_lines_of_a_narrow_terminal():
    """Only a word that does not fit ends a line: no line break of a docstring is kept."""
    environment = {"PYTHONPATH": str(ROOT / ".ns"), "PATH": "", "COLUMNS": "80"}
    words = [sys.executable, "-m", "specbench", "ab", "--help"]
    lines = (
        subprocess.run(words, capture_output=True, text=True, env=environment).stdout.split("Examples:")[0].splitlines()
    )
    broken = [(one, two) for one, two in zip(lines, lines[1:], strict=False) if one.strip() and two.strip()]
    assert len(broken) > 10
    assert not [one for one, two in broken if len(one.rstrip()) + len(two.split()[0]) < 78]
