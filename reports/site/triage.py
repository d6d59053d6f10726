"""Recent improvements and regressions: the newest steps of all histories, grouped by commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from specbench.harness.judge.history.points import METRICS, Series
from specbench.harness.judge.history.steps import DatedStep
from specbench.harness.stats.verdict import IMPROVED, REGRESSED
from specbench.reports.cells import change_text
from specbench.reports.document import Cell, Section, Table, table_of

from . import badges
from .history_series import SeriesHistory, commit_link
from .verdict_charts import signed_word

_MAX_COMMITS, _MAX_FIGURES = 8, 3
_Found = tuple[Series, DatedStep]
_MIXED = "mixed"
_TONES = {IMPROVED: badges.GOOD, REGRESSED: badges.BAD}


def triage_section(shown: Sequence[SeriesHistory], pages: Mapping[str, str]) -> list[Section]:
    """Empty if no workload has a history. `pages`: by run id."""
    if not shown:
        return []
    found = sorted(
        ((story.series, step) for story in shown for step in story.steps),
        key=lambda one: (one[1].after.utc, abs(one[1].change)),
        reverse=True,
    )
    commits: dict[tuple[str, str], list[_Found]] = {}
    for series, step in found:
        commits.setdefault((series.case, step.after.commit), []).append((series, step))
    newest = list(commits.values())[:_MAX_COMMITS]
    words = [_word(group) for group in newest]
    counts = ", ".join(f"{words.count(word)} {word}" for word in (REGRESSED, IMPROVED, _MIXED) if word in words)
    sentence = f"Commits at which a figure changed, the newest first: {counts}." if newest else _none(shown)
    suspects = sum(len(story.suspects) for story in shown)
    sentences = [sentence]
    if suspects:
        sentences.append(f"The newest commits also have {suspects} suspicious figures: only a rerun in pairs decides.")
    return [
        Section(
            title="Improved and regressed lately",
            links=(Cell(text="History by commit", href="history.html"),),
            sentences=tuple(sentences),
            tables=(_table(newest, pages),),
        )
    ]


def _table(groups: Sequence[Sequence[_Found]], pages: Mapping[str, str]) -> Table:
    columns: dict[str, Callable[[Sequence[_Found]], str | Cell]] = {
        "since commit": lambda group: commit_link(group[0][1].after, pages),
        "verdict": lambda group: Cell(text=signed_word(_word(group)), tone=_TONES.get(_word(group), badges.OPEN)),
        "largest changes": _largest,
        "first run (UTC)": lambda group: group[0][1].after.utc.replace("T", " ")[:16],
        "workload": lambda group: group[0][0].case_text,
    }
    return table_of("Commits with a change point in their history", columns, groups)


def _word(group: Sequence[_Found]) -> str:
    words = {step.verdict for _, step in group}
    return words.pop() if len(words) == 1 else _MIXED


def _largest(group: Sequence[_Found]) -> str:
    ordered = sorted(group, key=lambda one: -abs(one[1].change))
    changes = [f"{series.arm}: {METRICS[series.metric].name} {change_text(step.change)}" for series, step in ordered]
    more = len(changes) - _MAX_FIGURES
    return "; ".join(changes[:_MAX_FIGURES]) + (f"; and {more} more" if more > 0 else "")


def _none(shown: Sequence[SeriesHistory]) -> str:
    most = max(len(story.series.commits) for story in shown)
    return f"No change point was found in {len(shown)} histories of up to {most} commits."
