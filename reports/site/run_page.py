"""The page of one run: the exact command first, then its figures, then the evidence behind them."""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import replace

from specbench.harness.judge.rerun import certify_command
from specbench.harness.metrics.figures import E2EL_MS
from specbench.harness.roofline.machines import Roofline
from specbench.harness.store.arm_record import FORCED
from specbench.harness.store.environment import GitState
from specbench.harness.store.results import ArmSummary
from specbench.reports.charts.chart import Chart, Styles
from specbench.reports.document import Cell, Command, Section, Table
from specbench.reports.experiments.ab_brief import ab_answer, ab_unequal
from specbench.reports.experiments.verdict_table import verdict_table
from specbench.reports.profile.report import commands as profile_commands
from specbench.reports.run.accuracy_table import accuracy_tables
from specbench.reports.run.answer import answer
from specbench.reports.run.charts import tps_chart
from specbench.reports.run.comparison import arms_table
from specbench.reports.run.document import purpose_tables
from specbench.reports.run.group_tables import category_tables
from specbench.reports.run.notes import footnotes
from specbench.reports.run.percentiles import medians, percentile_chart, percentile_tables
from specbench.reports.run.roofline_table import roofline_table
from specbench.reports.run.view import RunView

from . import badges
from .accuracy_page import certificate_section, was_measured_here
from .changes import difference_table, environment_rows
from .distributions import distribution_charts, latencies
from .experiment_blocks import blocks_table
from .page import Page
from .predecessors import Follows
from .raw_files import files_table
from .runs import WRONG_SHAPE, SiteRun, described
from .verdict_charts import verdict_charts
from .verdict_claim import caution, claim_facts, claim_title


def run_page(run: SiteRun, follows: Follows | None, profile_href: str | None, styles: Styles, whole: bool) -> Page:
    """`follows`: its predecessors. `profile_href`: the page of its traces, if it has any. `whole`: whether to include
    what requires reading the whole run: distributions, the table of its recipe, its scores."""
    view = _with_roofline(run) if whole else run.figures
    sections = [
        _reproduce(run),
        *_verdict(run),
        *_figures(run, view, styles, whole),
        *_latency(run, styles, whole),
        *_roofline(view),
        *_distributions(run, styles, whole),
        *_proof(run, whole),
        *_traces(run, profile_href),
        *_changes(follows),
    ]
    return Page(
        path=run.page,
        title=f"Run {run.run_id}",
        lead=_answer(run),
        warnings=_warnings(run),
        sections=(*sections, *_origin(run)),
    )


def _answer(run: SiteRun) -> str:
    """The result, in the sentence that the terminal output starts with."""
    if run.ab is not None:
        return ab_answer(run.ab)
    if run.is_experiment or run.record.profile is not None or not run.arms:
        return f"Began {run.started_utc}, status {run.figures.status}."
    return answer(run.figures)


def _warnings(run: SiteRun) -> tuple[str, ...]:
    words = f"The run is not complete (status {run.figures.status}): figures cover only what was measured."
    unfinished = [words] if run.record.status != "complete" else []
    failed = [f"{arm.label}: {arm.status}: {arm.error}" for arm in run.arms if arm.status in ("failed", "partial")]
    return (*unfinished, *failed)


def _reproduce(run: SiteRun) -> Section:
    git = run.record.git or GitState()
    commands = [Command(name=f"Command (started {run.started_utc}, {run.record.status})", text=run.record.command)]
    if git.sha:
        commands.append(Command(name="Code", text=f"git checkout {git.sha}"))
    for n, resumed in enumerate(run.record.resumes):
        text = f"{shlex.join(resumed.argv)}   # {resumed.resumed_utc}"
        commands.append(Command(name=f"Resumed, {n + 1}", text=text))
    for name, profile in run.profiles.items():
        commands += [Command(name=f"{name}: {c.name}", text=c.text) for c in profile_commands(profile)]
    dirty = ("The checkout had local changes: the commit alone does not give the same code.",) if git.dirty else ()
    return Section(title="Reproduce", sentences=dirty, commands=tuple(commands))


def _verdict(run: SiteRun) -> list[Section]:
    if not run.is_experiment:
        return []
    if run.ab is None:
        command = f"specbench ab --resume {shlex.quote(str(run.path))}"
        return [Section(title="Verdict", sentences=(f"Not judged yet: {command}",))]
    unequal = ab_unequal(run.ab)
    tell = certify_command(run.record) if unequal else ""
    verdict = Section(
        title="Verdict",
        badge=badges.verdict(run.ab),
        sentences=(f"{claim_title(run.ab)}.", *caution(run.ab)),
        commands=(Command(name=f"{unequal}; which of the two", text=tell),) if tell else (),
        facts=claim_facts(run),
        charts=verdict_charts(run.ab),
        tables=(verdict_table(run.ab),),
    )
    return [verdict, Section(title="Blocks", tables=(blocks_table(run),))]


def _figures(run: SiteRun, view: RunView, styles: Styles, whole: bool) -> list[Section]:
    if not run.arms:
        return []
    table = arms_table(view)
    more = requested_tables(run) if whole else []
    later = f"The table of the run's recipe: specbench show {shlex.quote(str(run.path))}"
    sentences = (later,) * (asks(run) and not more)
    charts = (tps_chart(run.arms, styles),) if whole and not run.is_experiment else ()  # a verdict has its own
    return [Section(title="Figures", sentences=sentences, charts=charts, tables=(table, *category_tables(view), *more))]


def asks(run: SiteRun) -> bool:
    """Whether the run was made for a special table, of a recipe or a base."""
    return bool(run.record.purpose.recipe or run.record.purpose.ablation)


def requested_tables(run: SiteRun) -> list[Table]:
    """These tables; empty for other runs."""
    return purpose_tables(run.with_requests()) if asks(run) else []


def _latency(run: SiteRun, styles: Styles, whole: bool) -> list[Section]:
    """Runs from before E2EL was stored are derived again if the whole run is read."""
    figures = medians(run.arms)
    if whole and all(own.get(E2EL_MS.block) is None for own in figures.values()):
        with contextlib.suppress(ValueError, *WRONG_SHAPE):  # the section below shows the reason
            figures = latencies(run)
    chart, tables = percentile_chart(figures, styles), percentile_tables(figures)
    return [Section(title="Latency percentiles", charts=(chart,), tables=tuple(tables))] if tables else []


def _with_roofline(run: SiteRun) -> RunView:
    try:
        return run.with_roofline()
    except (ValueError, *WRONG_SHAPE) as error:
        return replace(run.figures, roofline=Roofline(unknown=f"the raw tables cannot be read: {described(error)}"))


def _roofline(view: RunView) -> list[Section]:
    """Empty if not checked: raw tables of older runs are not read."""
    roofline, title = view.roofline, "Against the roofline"
    if roofline.machine is not None:
        return [Section(title=title, tables=(roofline_table(roofline.arms, roofline.machine),))]
    return [Section(title=title, sentences=(f"No roofline: {roofline.unknown}.",))] if roofline.unknown else []


def _distributions(run: SiteRun, styles: Styles, whole: bool) -> list[Section]:
    if not run.arms:
        return []
    charts: tuple[Chart, ...] = ()
    sentence = f"Drawn for the newest runs only; for this one: specbench report {shlex.quote(str(run.path))}"
    try:
        if whole:
            charts, sentence = distribution_charts(run, styles), "No request was completed."
    except (ValueError, *WRONG_SHAPE) as error:
        sentence = f"The raw tables cannot be read: {described(error)}"
    return [Section(title="Distributions", sentences=() if charts else (sentence,), charts=charts)]


def _changes(follows: Follows | None) -> list[Section]:
    """What differs from the newest older run that it can be compared with; if there is none, from the newest of its
    kind."""
    if follows is None:
        return []
    title = "Changes since the previous run"
    if follows.before is None:
        none = "No earlier run on this site has the same model, workload and load and shares an arm with it."
        return [Section(title=title, sentences=(none,))]
    before = follows.comparable or follows.before
    why = [reasons for other, reasons in follows.refused if other is before]
    sentences = [f"The two are not comparable: {'; '.join(reasons)}." for reasons in why]
    table = difference_table(follows.run, before)
    if table is None:
        sentences.append(
            "Nothing recorded differs: commit, configuration, hardware, software and settings are the same."
        )
    git = [one.record.git or GitState() for one in (follows.run, before)]
    if any(one.dirty for one in git) and not (git[0].changes and git[0].revision == git[1].revision):
        sentences.append("A checkout had local changes, which are not recorded: the code may differ.")
    return [Section(title=title, links=(before.link,), sentences=tuple(sentences), tables=(table,) if table else ())]


def _proof(run: SiteRun, whole: bool) -> list[Section]:
    found = []
    if run.certificate is not None:
        found.append(certificate_section(run, "Losslessness"))
    elif was_measured_here(run) and any(_differs(arm) for arm in run.arms):
        why = "Outputs differ between arms, because of near-ties or an error; the notes of the figures say more."
        command = Command(name="Which of the two", text=f"specbench certify --run {shlex.quote(str(run.path))}")
        found.append(Section(title="Losslessness", sentences=(why,), commands=(command,)))
    if run.record.purpose.evaluation is None:
        return found
    if not whole:
        elsewhere = f"The scores of an older run: specbench show {shlex.quote(str(run.path))}"
        return [*found, Section(title="Accuracy", sentences=(elsewhere,))]
    sentences = (run.accuracy_problem,) if run.accuracy_problem else ()
    return [*found, Section(title="Accuracy", sentences=sentences, tables=tuple(accuracy_tables(run.with_scores())))]


def _differs(arm: ArmSummary) -> bool:
    """Forced acceptance keeps tokens that the model would not produce: there is nothing to certify."""
    rate = arm.speedup.same_output_rate if arm.speedup else None
    return rate is not None and rate < 1 and not any(mark.startswith(FORCED) for mark in arm.marks)


def _traces(run: SiteRun, href: str | None) -> list[Section]:
    graphs = run.figures.graphs
    failures = [f"{arm}: not traced: {error}" for arm, error in graphs.failures.items()] if graphs else []
    if href is None and not failures:
        return []
    links = (Cell(text="Phases, launches, synchronisations and the median round", href=href),) if href else ()
    return [Section(title="Traces", badge=badges.graph_claim(run), links=links, sentences=tuple(failures))]


def _origin(run: SiteRun) -> list[Section]:
    notes = footnotes(run.figures)
    about = tuple((name, value) for name, value in notes if name != "command")  # the page began with it
    tables = [Table(title="What was run", headers=("what", "value"), rows=about)] if run.arms else []
    environment = Table(
        title="Hardware, software, settings", headers=("what", "value"), rows=tuple(environment_rows(run.record))
    )
    return [
        Section(title="Environment", tables=(*tables, environment)),
        Section(title="Raw files", tables=(files_table(run),)),
    ]
