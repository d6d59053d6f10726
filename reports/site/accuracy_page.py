"""Correctness of outputs: certificates of losslessness, and scores paired item by item."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from specbench.harness.stats.verdict import MIN_EFFECT
from specbench.reports.charts.chart import CHANGES, Axis, Chart, drawable
from specbench.reports.document import Cell, Section, table_of
from specbench.reports.experiments.certificate import certificate_table
from specbench.reports.run.accuracy_table import accuracy_tables

from . import badges
from .groups import by_case
from .page import Page, or_nothing
from .runs import SiteRun

PATH = "accuracy.html"
MAX_GROUPS = 10
_CERTIFICATES: dict[str, Callable[[SiteRun], str | Cell]] = {
    "run": lambda run: run.link,
    "commit": lambda run: run.commit,
    "verdict": badges.certificate,
}


def accuracy_page(runs: Sequence[SiteRun]) -> Page:
    """The newest certificate and the newest scores of each workload, and every certificate that failed."""
    certified = [run for run in runs if run.certificate is not None]
    scored = [run for run in runs if run.record.purpose.evaluation]
    newest = {group.newest.page for group in by_case(certified)[:MAX_GROUPS]}
    shown = [run for run in certified if run.page in newest or badges.certificate(run).tone == badges.BAD]
    sections = [_certificate(run) for run in shown[: 2 * MAX_GROUPS]]
    sections += [_scores(group.newest, n) for n, group in enumerate(by_case(scored)[:MAX_GROUPS])]
    if certified:
        table = table_of("Every certificate, the newest first", _CERTIFICATES, certified)
        sections.append(Section(title="All certificates", tables=(table,)))
    ways = "Certify a run with specbench certify RUN; score its arms with specbench accuracy RUN."
    return Page(
        path=PATH,
        title="Accuracy and certificates",
        lead="A speed-up that changes the answers is not a speed-up.",
        sections=or_nothing(sections, "No evidence yet", ways),
    )


def difference_frame(run: SiteRun) -> pd.DataFrame:
    """y: arm and task, x: difference of its score from the baseline's over the same items, with its interval."""
    pairs = run.accuracy.pairs if run.accuracy else ()
    rows = [
        (f"{p.arm}, {p.task}, {p.filter}", p.items.difference, p.items.low, p.items.high, p.items.detectable)
        + (f"p = {p.items.p:.2g}",)
        for p in pairs
        if p.items.p is not None
    ]
    return pd.DataFrame(rows, columns=[*CHANGES[:-1], "p"])


def _certificate(run: SiteRun) -> Section:
    assert run.certificate is not None
    tables = (certificate_table(run.certificate),)
    title = f"Losslessness of {run.run_id}"
    return Section(title=title, badge=badges.certificate(run), links=(run.link,), tables=tables)


def _scores(run: SiteRun, n: int) -> Section:
    title = f"Scores of {run.run_id}"
    if run.accuracy is None:
        return Section(title=title, sentences=(run.accuracy_problem or "no arm was scored yet",))
    chart = Chart(
        name=f"scores-{n + 1}",
        title=f"Score against {run.accuracy.baseline}, item by item",
        description="Diamonds: difference over the same items with its 95% interval (Agresti and Min). Grey: one "
        "point. Short strokes: the minimum detectable difference with so many items. p: McNemar, exact.",
        frame=difference_frame(run),
        x=Axis(title="difference of the score", unit="change"),
        y=Axis(title="arm", scale="names"),
        marks="points",
        margin=MIN_EFFECT,
        words="p",
    )
    tables = tuple(accuracy_tables(run.with_scores()))
    return Section(title=title, links=(run.link,), charts=drawable(chart), tables=tables)
