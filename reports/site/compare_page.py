"""Verdicts of A/B experiments as cards, and every strategy beside every other with relative factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from specbench.harness.measure.metrics import ArmSummary
from specbench.harness.measure.verdict import EQUIVALENT, IMPROVED, INCONCLUSIVE, REGRESSED
from specbench.reports.cells import NOTHING, comparison, number, row_name
from specbench.reports.document import Command
from specbench.reports.result_table import ResultTable
from specbench.reports.verdict_table import verdict_table

from . import badges
from .groups import Group, by_case, by_load
from .page import Cell, Page, Section
from .plots import Intervals, Plot, Slopes
from .run_page import asked_tables
from .runs import SiteRun

PATH = "compare.html"
MAX_CARDS, MAX_GROUPS, _MAX_ASKED = 20, 12, 8
_MOST_PAIRS = 40  # of a metric, drawn as lines: prompts can be hundreds
_SIGNS = {IMPROVED: "▲", REGRESSED: "▼", EQUIVALENT: "~", INCONCLUSIVE: "?"}


def compare_page(runs: Sequence[SiteRun]) -> Page:
    """Cards of the newest experiments, then a matrix a sweep, then the tables that recipes ask for."""
    experiments = [run for run in runs if run.ab is not None]
    others = [run for run in runs if not run.is_experiment and run.arms]
    sections = [_card(run, n) for n, run in enumerate(experiments[:MAX_CARDS])]
    if len(experiments) > MAX_CARDS:
        links = tuple(Cell(text=run.run_id, href=run.page) for run in experiments[MAX_CARDS:])
        sections.append(Section(title="Older experiments", links=links))
    groups = by_load(others)
    sections += [_matrix(group) for group in groups[:MAX_GROUPS]]
    if len(groups) > MAX_GROUPS:
        note = f"{len(groups) - MAX_GROUPS} older workloads are left out; each run's page has its table."
        sections.append(Section(title="Older workloads", sentences=(note,)))
    if not sections:
        sections = [Section(title="Nothing to compare", sentences=("No run here has a measured arm.",))]
    return Page(
        path=PATH,
        title="Compare",
        lead="Which is faster, by how much, and whether that is more than noise.",
        sections=tuple(sections),
    )


def interval_frame(record: Mapping[str, Any]) -> pd.DataFrame:
    """y: metric, x: change of B against A as a fraction, with its interval, the least effect and the verdict."""
    rows = [
        {
            "y": c["metric"]["name"],
            "x": c["change"],
            "low": c["low"],
            "high": c["high"],
            "least": c["least_effect"],
            "word": _word(c),
        }
        for c in record["metrics"]
        if c["change"] is not None
    ]
    return pd.DataFrame(rows)


def slope_frame(record: Mapping[str, Any]) -> pd.DataFrame:
    """Pairs of the gated metrics, at most _MOST_PAIRS evenly among them: y is the value against A's mean, minus one."""
    rows = []
    for c in record["metrics"]:
        pairs = c.get("pairs") or []
        if not c["metric"]["gated"] or len(pairs) < 2:
            continue
        mean = sum(a for a, _ in pairs) / len(pairs)
        for n in sorted({i * len(pairs) // _MOST_PAIRS for i in range(_MOST_PAIRS)}):
            pair = pairs[n]
            name = f"{c['metric']['pairs'].removesuffix('s')} {n + 1}"
            rows += [
                {"facet": c["metric"]["name"], "pair": name, "x": side, "y": value / mean - 1, "value": value}
                for side, value in zip("AB", pair, strict=True)
            ]
    return pd.DataFrame(rows)


def matrix_table(group: Group) -> ResultTable:
    """A row a strategy, a column a load: TPS and the factor against no-spec of the same run, the newest run of each."""
    newest: dict[str, SiteRun] = {}
    for run in group.runs:
        newest.setdefault(_load(run), run)
    loads = sorted(newest, key=lambda name: (newest[name].concurrency or 0, name))
    arms = {load: {row_name(arm): arm for arm in newest[load].arms} for load in loads}
    names = list(dict.fromkeys(name for load in loads for name in arms[load]))
    rows = tuple((name, *(_cell(arms[load].get(name)) for load in loads)) for name in names)
    return ResultTable(
        title="Tokens per second (factor against no-spec of the same run)",
        headers=("strategy", *loads),
        rows=rows,
        notes=("Medians over the repeats of the newest run of each load.",),
    )


def _card(run: SiteRun, n: int) -> Section:
    assert run.ab is not None
    names = ", ".join(f"{label}: {arm['name'] or arm['strategy']}" for label, arm in run.ab["arms"].items())
    return Section(
        title=names or run.run_id,
        badge=badges.verdict(run.ab),
        links=(Cell(text=run.run_id, href=run.page),),
        commands=(Command(name="Command", text=str(run.manifest["command"])),),
        charts=tuple(_card_charts(run.ab, n)),
        tables=(verdict_table(run.ab),),
    )


def _card_charts(record: Mapping[str, Any], n: int) -> list[Plot]:
    found: list[Plot] = []
    changes, pairs = interval_frame(record), slope_frame(record)
    if len(changes):
        found.append(
            Intervals(
                name=f"verdict-{n + 1}",
                title="Change of B against A",
                description="Diamonds: change with its 95% interval. Grey: changes too small to matter. Short strokes: "
                "the least effect that so many pairs would have found.",
                frame=changes,
                x_title="change of B against A",
                y_title="metric",
                margin=float(record["plan"]["min_effect"]),
            )
        )
    if len(pairs):
        found.append(
            Slopes(
                name=f"pairs-{n + 1}",
                title="Pair by pair",
                description="A line a pair that ran back to back, or had the same prompt; of more than "
                f"{_MOST_PAIRS} pairs only some, evenly.",
                frame=pairs,
                x_title="side",
                y_title="against the mean of A",
            )
        )
    return found


def _word(c: Mapping[str, Any]) -> str:
    if not c["metric"]["gated"]:
        return "exploratory"
    return f"{_SIGNS.get(c['verdict'], '')} {c['verdict']}".strip()


def _matrix(group: Group) -> Section:
    headers, rows = comparison(group.newest.view(with_accuracy=False))
    cells = tuple(tuple(row[header] for header in headers) for row in rows)
    newest = ResultTable(title=f"All figures of {group.newest.run_id}", headers=headers, rows=cells)
    asked = [table for case in by_case(group.runs)[:_MAX_ASKED] for table in asked_tables(case.newest)]
    links = tuple(Cell(text=run.run_id, href=run.page) for run in group.runs[:5])
    return Section(title=group.title, links=links, tables=(matrix_table(group), newest, *asked))


def _load(run: SiteRun) -> str:
    rate = (run.manifest.get("sampling") or {}).get("request_rate")
    if rate:
        return f"{rate:g} requests/s"
    return f"{run.concurrency} at once" if run.concurrency else "load unknown"


def _cell(arm: ArmSummary | None) -> str:
    if arm is None:
        return NOTHING
    if arm.median("tps") is None:
        return arm.status
    ratio = arm.speedup.tps_ratio if arm.speedup else None
    return number(arm.median("tps")) + (f" ({ratio:.2f}x)" if ratio else "")
