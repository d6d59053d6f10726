"""README and docs: generated sections are up to date, links lead somewhere, commands and options exist."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest
import typer

from specbench.harness.cli.main import app
from specbench.harness.spec.spellings import canonical

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MEASURED = [*sorted((ROOT / "benchmarks").glob("*.md")), ROOT / "benchmarks" / "engines" / "README.md"]


def commands_of(text: str) -> list[str]:
    """Lines of code blocks, and code in table cells, that run specbench; continued lines joined."""
    blocks = "\n".join(re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    lines = [*blocks.splitlines(), *re.findall(r"`(specbench [^`]*)`", text)]
    return [line.strip() for line in lines if line.strip().startswith("specbench ")]


def unknown_option(line: str) -> str:
    """The first option of a command line that its command does not have; empty where all exist."""
    words = shlex.split(line, comments=True)[1:]
    command, passes_through = typer.main.get_command(app), False
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
        passes_through |= bool(command.context_settings.get("ignore_unknown_options"))
    known = {flag for parameter in command.params for flag in parameter.opts} | {"--help"}
    if passes_through:
        known |= {flag for p in typer.main.get_command(app).commands["run"].params for flag in p.opts}  # type: ignore
    flags = [word.partition("=")[0] for word in words if re.fullmatch(r"--?[a-zA-Z][\w-]*(=.*)?", word)]
    return next((flag for flag in flags if canonical(flag, known) not in known), "")


@pytest.fixture(scope="module")
def generator() -> dict:
    return runpy.run_path(str(ROOT / "docs" / "generate.py"))


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_generated_sections_are_up_to_date(page, generator):
    text = page.read_text(encoding="utf-8")
    assert generator["filled"](text) == text, "run `python docs/generate.py`"


def test_every_generated_section_is_on_a_page(generator):
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    unused = [name for name in generator["SECTIONS"] if f"<!-- generated: {name} -->" not in text]
    assert not unused


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_lines_outside_tables_fit_an_editor(page):
    lines = enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
    assert not [number for number, line in lines if len(line) > 132 and not line.startswith("|")]


@pytest.mark.parametrize("page", [*PAGES, *MEASURED], ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, heading = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page.name}: {target}"
        if heading:
            titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles], target


def test_files_and_pictures_that_results_show_exist():
    for page in (ROOT / "benchmarks").rglob("*.md"):
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            assert "://" in target or (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_and_their_options_exist(page):
    assert not [(line, bad) for line in commands_of(page.read_text(encoding="utf-8")) if (bad := unknown_option(line))]


@pytest.mark.parametrize("line", ["specbench run --no-such-thing 1", "specbench history sho --all x"])
def test_that_check_itself(line):
    assert unknown_option(line)


def test_conformance_names_tests_that_exist():
    text = (ROOT / "docs" / "correctness.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:harness|kernels|strategies)/[\w/]+\.py)`", text))
    assert len(named) > 20 and not [name for name in named if not (ROOT / "tests" / name).exists()]


def test_conformance_has_every_number_with_a_test_that_stands_for_it():
    """Green on a CPU, under the marker gpu, or ruled out by a test: nothing is open."""
    text = (ROOT / "docs" / "correctness.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, 71))
    for number, tests, status in rows:
        files = [(ROOT / "tests" / name).read_text(encoding="utf-8") for name in re.findall(r"`([\w/]+\.py)`", tests)]
        assert files and re.search("passes on|GPU|cannot occur", status), number
        if status.startswith("GPU"):
            assert any("mark.gpu" in file or "graph_plan" in file for file in files), number
        if "cannot occur" in status:
            assert any(f"def test_c{number}_" in file for file in files), number


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
