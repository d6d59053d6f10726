"""Every command that a page or a terminal shows can be typed as it stands: it names real paths and known options.

The pages of runs with a history, scores and traces are looked at in test_browser.py, which makes them anyway.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hints import check, hints_in, hints_of
from site_samples import copied, finished_run
from typer.testing import CliRunner

from specbench.harness.cli.main import app
from specbench.reports.site import stored_comparison
from specbench.reports.site.build import build_site
from specbench.reports.site.predecessors import followers
from specbench.reports.site.runs import read_site_runs

STORED = Path(__file__).parents[3] / "benchmarks" / "runs"
AB = STORED / "cpu" / "20261121T130436Z-k2k4quiet-3362e86c"
(POINT,) = (STORED / "h200").glob("*-crossover-*/runs/*-b32-*")


def test_commands_on_the_pages_of_our_stored_runs_can_be_typed(tmp_path):
    assert not build_site([AB, POINT], tmp_path / "site").problems
    hints = {hint for page in (tmp_path / "site").rglob("*.html") for hint in hints_of(page)}
    for hint in hints:
        check(hint)
    assert {hint.split()[1] for hint in hints} >= {"ab", "accuracy", "certify", "sweep"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Path]:
    """Two workloads of two runs each."""
    folder = tmp_path_factory.mktemp("hints")
    first = [finished_run(folder, started=f"2026-03-0{n}T00:00:00Z", concurrency=n, sha="a" * 40) for n in (1, 2)]
    again = [copied(run, folder, n, started=f"2026-04-0{n + 1}T00:00:00Z", sha="b" * 40) for n, run in enumerate(first)]
    return [*first, *again]


def test_pairs_that_are_not_shown_come_with_their_command(runs, monkeypatch):
    monkeypatch.setattr(stored_comparison, "MAX_PAIRS", 1)
    found, _ = read_site_runs(runs)
    sections = stored_comparison.stored_sections(found, followers(found))
    assert [len(section.commands) for section in sections] == [1, 1]
    compared = [shlex.split(section.commands[0].text)[2:] for section in sections]
    assert {path for pair in compared for path in pair} == {str(path) for path in runs}
    for section in sections:
        check(section.commands[0].text)


def test_commands_in_a_terminal_can_be_typed(runs):
    for words in (
        ("show", runs[0]),
        ("show", runs[0], "--format", "wide"),
        ("show", runs[0], "--format", "md"),
        ("show", AB),
        ("show", POINT.parents[1]),
        ("compare", runs[0], runs[2]),
    ):
        result = CliRunner().invoke(app, list(map(str, words)))
        hints = hints_in(result.output)
        assert result.exit_code == 0 and hints, result.output
        for hint in hints:
            check(hint)


@pytest.mark.parametrize("bad", ["specbench compare OLDER NEWER", "specbench show --no-such x", "specbench run -s"])
def test_that_check_itself(bad):
    with pytest.raises(AssertionError):
        check(bad)
