"""Speed-up of each strategy against the baseline of its run, from stored intervals: no raw table is read."""

from __future__ import annotations

import pandas as pd

from specbench.reports.cells import row_name
from specbench.reports.charts.chart import Axis, Chart, Styles, small_charts
from specbench.reports.run.answer import ratio_text

from .groups import Group, newest_by_load
from .runs import SiteRun

_TITLE = "Speed-up of TPOT against {}"
_INTERVAL = "Diamonds: speed-up with its 95% interval over blocks and prompts."
_NONE = "Diamonds: speed-up, without an interval."


def has_speedups(run: SiteRun) -> bool:
    """Whether any arm has a speed-up against a comparable baseline."""
    return any(arm.speedup is not None and arm.speedup.tpot_ratio for arm in run.arms)


def speedup_chart(group: Group, styles: Styles) -> Chart:
    """A row for each strategy or, if the group has several concurrencies, a line by concurrency."""
    loads = {run.concurrency for run in newest_by_load(group).values() if run.concurrency and has_speedups(run)}
    return _by_load(group, styles) if len(loads) > 1 else strategy_chart(next(filter(has_speedups, group.runs)))


def strategy_frame(run: SiteRun) -> pd.DataFrame:
    """y: strategy, x: speed-up of TPOT with its interval, the fastest first; words: both as text."""
    rows = [
        (row_name(arm), s.tpot_ratio, s.tpot_ratio_low, s.tpot_ratio_high, ratio_text(arm))
        for arm in run.arms
        if (s := arm.speedup) is not None and s.tpot_ratio
    ]
    columns = ["y", "x", "low", "high", "speed-up [95% CI]"]
    return pd.DataFrame(sorted(rows, key=lambda row: -row[1]), columns=columns).astype({"low": float, "high": float})


def load_frame(group: Group) -> pd.DataFrame:
    """series: strategy, x: concurrency, y: speed-up of TPOT in the newest run there, with its interval."""
    rows = [
        (row_name(arm), run.concurrency, s.tpot_ratio, s.tpot_ratio_low, s.tpot_ratio_high)
        for run in newest_by_load(group).values()
        for arm in run.arms
        if run.concurrency and (s := arm.speedup) is not None and s.tpot_ratio
    ]
    return pd.DataFrame(rows, columns=["series", "x", "y", "low", "high"]).astype({"low": float, "high": float})


def strategy_chart(run: SiteRun) -> Chart:
    """A row for each arm that was compared; the run must have one."""
    frame = strategy_frame(run)
    return Chart(
        name="speedup",
        title=_TITLE.format(_baseline(run)),
        description=f"{_INTERVAL if frame['low'].notna().any() else _NONE} Right of 1x: faster.",
        frame=frame,
        x=Axis(title="speed-up of TPOT", unit="factor"),
        y=Axis(title="strategy", scale="names"),
        marks="points",
        rule=1.0,
        words="speed-up [95% CI]",
    )


def _by_load(group: Group, styles: Styles) -> Chart:
    frame, baseline = small_charts(load_frame(group)), _baseline(next(filter(has_speedups, group.runs)))
    return Chart(
        name="speedup",
        title=f"{_TITLE.format(baseline)} by concurrency",
        description="Above the line at 1x speculation is faster. Bars: 95% interval over blocks and prompts.",
        frame=frame,
        x=Axis(title="concurrency (log scale)", scale="log2"),
        y=Axis(title=f"speed-up of TPOT (1x is {baseline})", unit="factor"),
        marks="lines",
        rule=1.0,
        styles=styles.of(frame["series"]),
    )


def _baseline(run: SiteRun) -> str:
    """Arms of several engines have one baseline per engine."""
    first, *others = dict.fromkeys(arm.speedup.baseline for arm in run.arms if arm.speedup is not None)
    return "the baseline of its engine" if others else first
