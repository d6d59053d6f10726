"""Verdicts of A/B experiments as cards, the newest runs against their predecessors, strategies with their speed-ups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from specbench.harness.store.results import ArmSummary
from specbench.reports.cells import NOTHING, arm_name, doubt_words
from specbench.reports.document import Command, Section, Table
from specbench.reports.experiments.ab_brief import ab_answer
from specbench.reports.experiments.verdict_table import verdict_table
from specbench.reports.run.comparison import comparison_table, tps_cell

from . import badges
from .groups import Group, by_case, by_load, newest_by_load
from .page import Page, newest_sections, one_open, or_nothing
from .predecessors import Follows
from .run_page import requested_tables
from .runs import SiteRun
from .stored_comparison import has_verdict, stored_sections
from .titles import distinct_titles
from .verdict_charts import DECIDED, verdict_charts
from .verdict_claim import caution, claim_facts, claim_title

_Item = TypeVar("_Item")
PATH = "compare.html"
MAX_CARDS, MAX_GROUPS, _MAX_REQUESTED = 20, 12, 8


def compare_page(runs: Sequence[SiteRun], follows: Mapping[str, Follows]) -> Page:
    """Cards of the newest experiments, then each workload's newest run against the previous one, then a matrix per
    sweep with the tables that recipes ask for. The newest one with a verdict comes first and is open."""
    experiments = _leading([run for run in runs if run.ab is not None], _is_decided)
    others = [run for run in runs if not run.is_experiment and run.arms]
    shown = experiments[:MAX_CARDS]
    titles = distinct_titles(list(map(_card_title, shown)), shown)
    sections = [_card(run, title, n) for n, (run, title) in enumerate(zip(shown, titles, strict=True))]
    if len(experiments) > MAX_CARDS:
        links = tuple(run.link for run in experiments[MAX_CARDS:])
        sections.append(Section(title="Older experiments", links=links))
    sections += stored_sections(others, follows)
    if not any(map(_is_decided, experiments)):
        sections = _leading(sections, has_verdict)
    sections += newest_sections(by_load(others), MAX_GROUPS, lambda group, _: _matrix(group))
    return Page(
        path=PATH,
        title="Compare",
        lead="Which is faster, by how much, and whether that is more than noise.",
        sections=or_nothing(one_open(sections), "Nothing to compare", "No run here has a measured arm."),
    )


def matrix_table(group: Group) -> Table:
    """A row per strategy, a column per load: TPS and the speed-up in the newest run at that load."""
    arms = {load: {arm_name(arm): arm for arm in run.arms} for load, run in newest_by_load(group).items()}
    names = list(dict.fromkeys(name for own in arms.values() for name in own))
    rows = tuple((name, *(_cell(own.get(name)) for own in arms.values())) for name in names)
    return Table(
        title="Tokens per second (speed-up against no-spec of the same run)",
        headers=("strategy", *arms),
        rows=rows,
        notes=("Medians over the repeats of the newest run of each load.",),
    )


def _leading(items: Sequence[_Item], is_decided: Callable[[_Item], bool]) -> list[_Item]:
    """Moves the first decided one to the front; the others keep their order."""
    first = next((n for n, item in enumerate(items) if is_decided(item)), 0)
    return [*items[first : first + 1], *items[:first], *items[first + 1 :]]


def _is_decided(run: SiteRun) -> bool:
    """Whether an experiment found a change, or showed that there is none."""
    record = run.ab
    return record is not None and not record.is_aa and record.decisive in DECIDED and record.same_output.is_enough


def _card_title(run: SiteRun) -> str:
    title = claim_title(run.ab) if run.ab is not None and run.ab.arms else run.run_id
    return f"{title} ({run.started_utc[:10]})"


def _card(run: SiteRun, title: str, n: int) -> Section:
    assert run.ab is not None
    return Section(
        title=title,
        anchor=run.anchor,
        badge=badges.verdict(run.ab),
        links=(run.link,),
        sentences=(ab_answer(run.ab), *caution(run.ab)),
        facts=claim_facts(run),
        commands=(Command(name="Command", text=run.record.command),),
        charts=verdict_charts(run.ab, n),
        tables=(verdict_table(run.ab),),
    )


def _matrix(group: Group) -> Section:
    figures = comparison_table(group.newest.figures)
    newest = replace(figures, title=f"All figures of {group.newest.run_id}", notes=())
    tables = [table for case in by_case(group.runs)[:_MAX_REQUESTED] for table in requested_tables(case.newest)]
    links = tuple(run.link for run in group.runs[:5])
    return Section(
        title=f"Strategies: {group.title}",
        anchor=f"loads-{group.newest.anchor}",
        links=links,
        tables=(matrix_table(group), newest, *tables),
    )


def _cell(arm: ArmSummary | None) -> str:
    if arm is None:
        return NOTHING
    return arm.status if arm.median("tps") is None else tps_cell(arm) + doubt_words(arm.marks)
