"""The newest run of each workload against the one before it, by the rules of `specbench compare`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from specbench.harness.judge.comparison import ComparedRuns, compare_runs
from specbench.harness.judge.stored import read_run
from specbench.harness.metrics.figures import COMPARED
from specbench.reports.charts.chart import CHANGES, Axis, Chart
from specbench.reports.document import Cell, Command, Section, Table, table_of, without
from specbench.reports.experiments.compare_table import compare_table

from .groups import Group, by_case
from .predecessors import Follows
from .runs import WRONG_SHAPE, SiteRun, described
from .verdict_charts import DECIDED, READING, signed_word

MAX_PAIRS = 8  # each takes as long as reading two runs whole
_MAX_REFUSED, _MAX_DRAWN, _MAX_COMMANDS = 3, 24, 20
_REFUSALS: dict[str, Callable[[Follows], str | Cell]] = {
    "run": lambda follows: follows.run.link,
    "before it": lambda follows: follows.refused[0][0].link,
    "why not": lambda follows: "; ".join(follows.refused[0][1]),
}
_TITLE = "Newest run against the one before"


def stored_sections(runs: Sequence[SiteRun], follows: Mapping[str, Follows]) -> list[Section]:
    """A section per workload whose newest run has a comparable predecessor, then those with only an incomparable one.
    If there are neither, a section that says so. `runs`: no experiments."""
    found = [(group, follows[group.newest.page]) for group in by_case(runs)]
    pairs = [(group, f) for group, f in found if f.comparable is not None]
    others = [f for _, f in found if f.comparable is None and f.before is not None]
    sections = [_section(group, f, n) for n, (group, f) in enumerate(pairs[:MAX_PAIRS])]
    if len(pairs) > MAX_PAIRS:
        left_out = pairs[MAX_PAIRS:]
        commands = tuple(_command(group.title, f.run, f.comparable or f.run) for group, f in left_out[:_MAX_COMMANDS])
        sentence = f"{len(left_out)} older workloads are not shown; the commands compare them in a terminal."
        title = f"{_TITLE}: older workloads"
        sections.append(Section(title=title, folded=True, sentences=(sentence,), commands=commands))
    if others:
        title = "Not comparable with the previous run"
        sections.append(Section(title=title, tables=(table_of("What differs (before and now)", _REFUSALS, others),)))
    if not sections and runs:
        sentence = "No run here has an earlier one of the same model, workload and load with an arm in common."
        sections = [Section(title=_TITLE, sentences=(sentence,))]
    return sections


def change_frame(compared: ComparedRuns) -> pd.DataFrame:
    """y: arm and metric, x: its change as a fraction, with the interval, the MDE and the verdict. Only metrics that can
    have a verdict."""
    rows = [
        (f"{row.arm}: {figure.name}", c.change, c.low, c.high, c.least_effect, signed_word(c.verdict))
        for row in compared.rows
        for figure in COMPARED
        if (c := row.comparisons.get(figure.key)) and figure.gated and c.change is not None and math.isfinite(c.change)
    ]
    return pd.DataFrame(rows[:_MAX_DRAWN], columns=CHANGES)


def has_verdict(section: Section) -> bool:
    """Whether any of these sections found a change, or showed that there is none, in any of its metrics."""
    words = {str(word) for chart in section.charts if "verdict" in chart.frame for word in chart.frame["verdict"]}
    return section.title.startswith(_TITLE) and not words.isdisjoint(map(signed_word, DECIDED))


def _section(group: Group, follows: Follows, n: int) -> Section:
    run, older = follows.run, follows.comparable
    assert older is not None
    sentences = [
        f"{other.run_id}, nearer in time, is not comparable: {'; '.join(why)}." for other, why in follows.refused
    ]
    if len(sentences) > _MAX_REFUSED:
        sentences[_MAX_REFUSED:] = [
            f"{len(sentences) - _MAX_REFUSED} more runs between them are not comparable either."
        ]
    shown = Section(
        title=f"{_TITLE}: {group.title}",
        anchor=f"before-{run.anchor}",
        links=(run.link, older.link),
        sentences=tuple(sentences),
    )
    try:
        compared = compare_runs([read_run(older.path), read_run(run.path)])
    except (ValueError, *WRONG_SHAPE) as error:
        return replace(shown, sentences=(*sentences, f"Could not be compared: {described(error)}"))
    return replace(
        shown,
        commands=(_command("The same in a terminal", run, older),),
        charts=(_chart(compared, n),),
        tables=(_table(compared, run, older),),
    )


def _command(name: str, run: SiteRun, older: SiteRun) -> Command:
    return Command(name=name, text=f"specbench compare {shlex.quote(str(older.path))} {shlex.quote(str(run.path))}")


def _chart(compared: ComparedRuns, n: int) -> Chart:
    return Chart(
        name=f"stored-{n + 1}",
        title="Change since the previous run",
        description=f"Diamonds: change, with its 95% interval where there is one. {READING}",
        frame=change_frame(compared),
        x=Axis(title="change against the previous run", unit="change"),
        y=Axis(title="strategy and metric", scale="names"),
        marks="points",
        margin=compared.min_effect,
        words="verdict",
    )


def _table(compared: ComparedRuns, run: SiteRun, older: SiteRun) -> Table:
    """Without the run column and the notes about what is compared: the title has both."""
    whole = compare_table(compared)
    compared_with = tuple(
        f"{row.run}: {row.arm}: {'against' if row.baseline else 'the baseline'}" for row in compared.rows
    )
    notes = tuple(note for note in whole.notes if not note.startswith(compared_with))
    return replace(without(whole, "run"), title=f"{run.run_id} against {older.run_id}", notes=notes)
