"""An A/B experiment drawn: the change of each metric with its interval, and the pairs behind it."""

from __future__ import annotations

import pandas as pd

from specbench.harness.stats.verdict import EQUIVALENT, IMPROVED, INCONCLUSIVE, REGRESSED
from specbench.harness.store.ab_judgement import JudgedMetric, Judgement
from specbench.reports.charts.chart import CHANGES, Axis, Chart, drawable
from specbench.reports.experiments.verdict_table import NO_VERDICT

SIGNS = {IMPROVED: "▲", REGRESSED: "▼", EQUIVALENT: "~", INCONCLUSIVE: "?"}
DECIDED = (IMPROVED, REGRESSED, EQUIVALENT)  # verdicts that say whether there is a change
READING = (
    "Grey: changes too small to matter. Short strokes: the minimum detectable effect (MDE) with this many pairs, in "
    "either direction."
)
_MAX_PAIRS = 40  # pairs of a metric drawn as lines: there can be hundreds of prompts


def verdict_charts(record: Judgement, n: int = 0) -> tuple[Chart, ...]:
    """The charts of `ab.json`; `n`: number of the experiment on its page. Charts without figures are left out."""
    changes = Chart(
        name=f"verdict-{n + 1}",
        title="Change of B against A",
        description=f"Diamonds: change with its 95% interval. {READING}",
        frame=interval_frame(record),
        x=Axis(title="change of B against A", unit="change"),
        y=Axis(title="metric", scale="names"),
        marks="points",
        margin=record.plan.min_effect,
        words="verdict",
    )
    pairs = Chart(
        name=f"pairs-{n + 1}",
        title="Pair by pair",
        description="One line for each pair of blocks that ran back to back, or of outputs to the same prompt; at most "
        f"{_MAX_PAIRS} pairs, evenly spaced.",
        frame=slope_frame(record),
        x=Axis(title="side", scale="ordinal"),
        y=Axis(title="relative to the mean of A", unit="change"),
        marks="lines",
    )
    return drawable(changes, pairs)


def interval_frame(record: Judgement) -> pd.DataFrame:
    """y: metric, x: change of B against A as a fraction, with its interval, the MDE and the verdict."""
    rows = [
        (c.metric.name, c.change, c.low, c.high, c.least_effect, _word(c, record))
        for c in record.metrics
        if c.change is not None
    ]
    return pd.DataFrame(rows, columns=CHANGES)


def slope_frame(record: Judgement) -> pd.DataFrame:
    """Pairs of the gated metrics, at most _MAX_PAIRS evenly spaced: y is the value divided by A's mean, minus one."""
    rows = []
    for c in record.metrics:
        pairs = c.pairs
        if not c.metric.gated or len(pairs) < 2:
            continue
        mean = sum(a for a, _ in pairs) / len(pairs)
        for n in sorted({i * len(pairs) // _MAX_PAIRS for i in range(_MAX_PAIRS)}):
            name = f"{c.metric.pairs.removesuffix('s')} {n + 1}"
            rows += [(c.metric.name, name, side, v / mean - 1, v) for side, v in zip("AB", pairs[n], strict=True)]
    return pd.DataFrame(rows, columns=["facet", "pair", "x", "y", "value"])


def signed_word(verdict: str) -> str:
    """`▲ improved`."""
    return f"{SIGNS.get(verdict, '')} {verdict}".strip()


def _word(c: JudgedMetric, record: Judgement) -> str:
    if record.verdict in NO_VERDICT:
        return record.verdict
    return signed_word(c.verdict) if c.metric.gated else "exploratory"
