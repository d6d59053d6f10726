"""A history as tables: points by commit with their steps, and suspects with the command for the rerun that decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specbench.harness.judge.history.points import Series
from specbench.harness.judge.history.steps import DRIVEN, MACHINE, DatedStep, Segment, Suspect
from specbench.harness.judge.rerun import rerun_command
from specbench.harness.judge.stored import Problem
from specbench.harness.store.files import json_text
from specbench.reports.cells import change_text, number, with_interval
from specbench.reports.document import Table, table_of

HISTORY_SCHEMA = "specbench.history/1"
_HEADERS = ("commit", "first run (UTC)", "value", "runs", "segment median", "event")
_NO_VERDICT = "A suspect is not a verdict: only a paired rerun of both commits decides."
_NO_OPTIONS = "Commands without options: the run does not record them; add those of its recipe or command."


@dataclass(frozen=True, kw_only=True, slots=True)
class SegmentedSeries:
    """A series with its segments, and the events at each of its commits."""

    series: Series
    segments: Sequence[Segment]
    steps: Sequence[DatedStep]

    def events(self) -> dict[int, str]:
        """Events by the number of the commit, in order."""
        by_commit = {id(step.after): step for step in self.steps}
        found = {}
        for segment in self.segments:
            for n in range(segment.start, segment.end):
                commit = self.series.commits[n]
                if n == segment.start and segment.begins == MACHINE:
                    before = self.series.commits[n - 1].fingerprint_text
                    found[n] = f"machine changed: from {before} to {commit.fingerprint_text}"
                elif n == segment.start and segment.begins == DRIVEN:
                    found[n] = f"driven differently: from now on {commit.driven}"
                elif (step := by_commit.get(id(commit))) is not None:
                    accepted = ", accepted" if step.accepted else ""
                    since = short_commit(step.before.commit)
                    found[n] = f"{step.verdict} {change_text(step.change)} since {since}{accepted}"
        return found


def overview_tables(histories: Sequence[SegmentedSeries]) -> tuple[Table, ...]:
    """A row for each series with its newest value; a table for each model and workload."""
    columns: dict[str, Callable[[SegmentedSeries], str]] = {
        "arm": lambda t: t.series.arm,
        "metric": lambda t: t.series.metric,
        "newest": lambda t: number(t.series.commits[-1].value),
        "segment median": lambda t: number(t.segments[-1].median),
        "commits": lambda t: str(len(t.series.commits)),
        "last event": lambda t: next(reversed(t.events().values()), ""),
    }
    by_case: dict[str, list[SegmentedSeries]] = {}
    for one in histories:
        by_case.setdefault(one.series.case, []).append(one)
    return tuple(table_of(cases[0].series.case_text, columns, cases) for cases in by_case.values())


def series_table(segmented: SegmentedSeries, last: int) -> Table:
    """The last `last` commits of one series."""
    series, events = segmented.series, segmented.events()
    rows = []
    for segment in segmented.segments:
        for n in range(segment.start, segment.end):
            commit = series.commits[n]
            values = (number(commit.value), str(commit.num_runs), number(segment.median))
            rows.append((short_commit(commit.commit), commit.utc, *values, events.get(n, "")))
    return Table(
        title=f"{series.metric} of {series.arm} ({series.case_text})", headers=_HEADERS, rows=tuple(rows[-last:])
    )


def suspects_table(suspects: Sequence[Suspect], problems: Sequence[Problem]) -> Table:
    """Newest points that stand out, each with the command that compares the two commits in pairs."""
    columns: dict[str, Callable[[Suspect], str]] = {
        "commit": lambda s: short_commit(s.commit.commit),
        "arm": lambda s: s.series.arm,
        "metric": lambda s: s.series.metric,
        "value": lambda s: number(s.commit.value),
        "expected [99% interval]": lambda s: with_interval(number, s.expected, s.low, s.high),
        "change": lambda s: change_text(s.change),
        "verdict": lambda s: s.verdict,
        "decide by": decide_by,
    }
    notes = [_NO_VERDICT] if suspects else ["No suspects."]
    notes += [_NO_OPTIONS] if any(not s.commit.options for s in suspects) else []
    return table_of("Suspects", columns, suspects, (*notes, *problem_notes(problems)))


def decide_by(suspect: Suspect) -> str:
    """The paired comparison of a suspect's commit with the one before, or why it cannot be made."""
    before, after = suspect.reference.commit, suspect.commit.commit
    return rerun_command(before, after, suspect.series.arm, suspect.commit.options)


def problem_notes(problems: Sequence[Problem]) -> tuple[str, ...]:
    return tuple(f"problem: {problem.reason}" for problem in problems)


def history_json(entries: Sequence[Mapping[str, Any]], problems: Sequence[Problem]) -> str:
    return json_text({"schema": HISTORY_SCHEMA, "series": entries, "problems": problems})


def short_commit(commit: str) -> str:
    """A git hash shortened, with its mark for local changes and the start of theirs; a run id is kept whole."""
    bare, plus, changes = commit.partition("+")
    is_hash = len(bare) in (40, 64) and all(c in "0123456789abcdef" for c in bare)
    return f"{bare[:12]}{plus}{changes[:8]}" if is_hash else commit
