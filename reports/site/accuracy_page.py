"""Correctness of outputs: certificates of losslessness, and scores paired item by item."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace

import pandas as pd

from specbench.harness.stats.verdict import MIN_EFFECT
from specbench.reports.charts.chart import CHANGES, Axis, Chart
from specbench.reports.document import Cell, Command, Section, table_of
from specbench.reports.experiments.certificate import certificate_answer, certificate_table, certificate_worst
from specbench.reports.run.accuracy_table import accuracy_tables

from . import badges
from .groups import by_case
from .page import Page
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
    return Page(
        path=PATH,
        title="Accuracy and certificates",
        lead="A speed-up that changes the answers is not a speed-up.",
        sections=tuple(sections) or (_no_evidence(runs),),
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


def _no_evidence(runs: Sequence[SiteRun]) -> Section:
    """With the commands that produce them, for the newest run that supports them."""
    run = next(filter(was_measured_here, runs), None)
    if run is None:
        return Section(title="No evidence yet", sentences=("No run here can be certified.",))
    certify = f"specbench certify --run {shlex.quote(str(run.path))}"
    commands = [Command(name="Are the outputs the target's own?", text=certify)]
    # An arm of a recipe has a label of its own, which no option takes.
    if all(arm.label.partition(":")[0] == arm.strategy for arm in run.record.arms):
        arms = " ".join(f"-s {shlex.quote(arm.label)}" for arm in run.record.arms)
        text = f"specbench accuracy --model {shlex.quote(run.model)} {arms} --tasks gsm8k --limit 200"
        commands.append(Command(name="Do the arms answer as well as the baseline?", text=text))
    return Section(
        title="No evidence yet", sentences=("No run here has a certificate or scores.",), commands=tuple(commands)
    )


def was_measured_here(run: SiteRun) -> bool:
    """Imported runs do not say how to start their arms, and the sides of an experiment are not arms."""
    return bool(run.arms) and not run.is_experiment and not any(arm.imported for arm in run.record.arms)


def certificate_section(run: SiteRun, title: str) -> Section:
    """The answer, then the table, then how it was judged. The run must have a certificate."""
    assert run.certificate is not None
    sentences = (certificate_answer(run.certificate), *certificate_worst(run.certificate))
    tables = (certificate_table(run.certificate),)
    return Section(title=title, badge=badges.certificate(run), sentences=sentences, tables=tables)


def _certificate(run: SiteRun) -> Section:
    section = certificate_section(run, f"Losslessness of {run.run_id}")
    return replace(section, links=(run.link,))


def _scores(run: SiteRun, n: int) -> Section:
    title = f"Scores of {run.run_id}"
    if run.accuracy is None:
        return Section(title=title, sentences=(run.accuracy_problem or "no arm was scored yet",))
    chart = Chart(
        name=f"scores-{n + 1}",
        title=f"Score against {run.accuracy.baseline}, item by item",
        description="Diamonds: difference over the same items with its 95% interval (Agresti and Min). Grey: one "
        "point. Short strokes: the minimum detectable difference with this many items. p: McNemar, exact.",
        frame=difference_frame(run),
        x=Axis(title="difference of the score", unit="change"),
        y=Axis(title="arm", scale="names"),
        marks="points",
        margin=MIN_EFFECT,
        words="p",
    )
    tables = tuple(accuracy_tables(run.with_scores()))
    return Section(title=title, links=(run.link,), charts=(chart,), tables=tables)
