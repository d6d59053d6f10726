"""Where each strategy stops paying: speed-up against no speculation by requests at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from specbench.reports.cells import row_name
from specbench.reports.result_table import ResultTable

from .groups import Group, by_load
from .page import Cell, Page, Section
from .plots import Lines, Styles
from .runs import SiteRun

PATH = "crossover.html"
MAX_GROUPS = 12
_HEADERS = ("strategy", "stops paying at", "95% interval", "best", "measured at")


def crossover_page(runs: Sequence[SiteRun], styles: Styles) -> Page:
    """A chart a sweep: runs alike in all but their load."""
    measured = [g for g in by_load(run for run in runs if not run.is_experiment) if len(crossover_frame(g))]
    groups = [g for g in measured if crossover_frame(g)["x"].nunique() > 1]
    shown = [_section(group, n, styles) for n, group in enumerate(groups[:MAX_GROUPS])]
    if len(groups) > MAX_GROUPS:
        note = f"{len(groups) - MAX_GROUPS} older workloads are left out; each run's page has its figures."
        shown.append(Section(title="Older workloads", sentences=(note,)))
    at_one = [g for g in measured if g not in groups][:MAX_GROUPS]
    if at_one:
        shown.append(_one_load(at_one))
    if not shown:
        needs = "No run here has an arm no-spec, another arm and a number of requests at once (--max-concurrency)."
        shown = [Section(title="Nothing to draw", sentences=(needs,))]
    return Page(
        path=PATH,
        title="Crossover",
        lead="Speculation trades spare compute for time; where many requests use it up, nothing is left to trade.",
        sections=tuple(shown),
    )


def crossover_frame(group: Group) -> pd.DataFrame:
    """series, x: requests at once, y: speed-up of TPOT with its interval; the newest run that has the arm counts."""
    rows: dict[tuple[str, int], dict] = {}
    for run in group.runs:
        for arm in run.arms:
            compared = arm.speedup
            if run.concurrency is None or compared is None or compared.tpot_ratio is None:
                continue
            rows.setdefault(
                (row_name(arm), run.concurrency),
                {
                    "series": row_name(arm),
                    "x": run.concurrency,
                    "y": compared.tpot_ratio,
                    "low": _number(compared.tpot_ratio_low),
                    "high": _number(compared.tpot_ratio_high),
                    "note": f"TPS {compared.tps_ratio:.2f}x" if compared.tps_ratio else "",
                },
            )
    ordered = sorted(rows.values(), key=lambda row: (row["series"], row["x"]))
    return pd.DataFrame(ordered)


def crossing(points: Sequence[tuple[int, float]]) -> float | None:
    """Where a curve of (requests at once, speed-up) falls below 1 for good, on a log axis; None where it does not.

    0 where it was never above. Between two measured loads the curve is taken as straight over log2.
    """
    falls = [n for n in range(len(points)) if points[n][1] < 1 and all(y < 1 for _, y in points[n:])]
    if not falls:
        return None
    n = falls[0]
    if n == 0:
        return 0.0
    (x0, y0), (x1, y1) = points[n - 1], points[n]
    return float(2 ** (math.log2(x0) + (y0 - 1) / (y0 - y1) * (math.log2(x1) - math.log2(x0))))


def crossover_table(frame: pd.DataFrame) -> ResultTable:
    """A row a strategy, with the interval in which its curve's interval crosses 1."""
    rows = []
    for name, own in frame.groupby("series", sort=False):
        at = list(own["x"])
        middle, low, high = (list(zip(at, own[column], strict=True)) for column in ("y", "low", "high"))
        known = own["low"].notna().all()
        ends = f"{_at(crossing(low), at)} to {_at(crossing(high), at)}" if known else "no interval"
        best = own.sort_values("y").iloc[-1]
        rows.append(
            (str(name), _at(crossing(middle), at), ends, f"{best['y']:.2f}x at {best['x']}", " ".join(map(str, at)))
        )
    notes = (
        "Speed-up: of TPOT, paired by prompt within a run. Interval: where the lower and the upper end of the "
        "speed-up's own 95% interval (bootstrap over prompts) fall below 1 for good; between measured loads by a "
        "straight line over log2.",
    )
    return ResultTable(title="Where it stops paying", headers=_HEADERS, rows=tuple(rows), notes=notes)


def _section(group: Group, n: int, styles: Styles) -> Section:
    frame = crossover_frame(group)
    chart = Lines(
        name=f"crossover-{n + 1}",
        title="Speed-up against no-spec by requests at once",
        description="Above the line at 1 speculation pays. Bars: 95% interval over prompts.",
        frame=frame,
        x_title="requests at once",
        y_title="speed-up of TPOT",
        styles=styles.of(frame["series"]),
        scale="log2",
        reference=1.0,
    )
    links = tuple(Cell(text=run.run_id, href=run.page) for run in group.runs[:5])
    return Section(title=group.title, links=links, charts=(chart,), tables=(crossover_table(frame),))


def _one_load(groups: Sequence[Group]) -> Section:
    """Speed-ups that make no curve."""
    rows = tuple(
        (str(row.series), f"{row.y:.2f}x [{row.low:.2f}, {row.high:.2f}]", str(row.x), group.title)
        for group in groups
        for row in crossover_frame(group).itertuples()
    )
    headers = ("strategy", "speed-up of TPOT [95% CI]", "requests at once", "workload")
    table = ResultTable(title="Speed-up at one load", headers=headers, rows=rows)
    more = "Run the same command with other values of --max-concurrency to see where a strategy stops paying."
    return Section(title="Measured at one load only", sentences=(more,), tables=(table,))


def _at(found: float | None, measured: Sequence[int]) -> str:
    if found is None:
        return f"beyond {measured[-1]}"
    return f"below {measured[0]}" if found == 0 else f"{found:.3g}"


def _number(value: float | None) -> float:
    return math.nan if value is None else value
