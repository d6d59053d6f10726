"""An A/B experiment drawn: each metric's change with its interval, and the pairs behind it."""

from __future__ import annotations

import pandas as pd

from specbench.harness.stats.verdict import EQUIVALENT, IMPROVED, INCONCLUSIVE, REGRESSED
from specbench.harness.store.ab_judgement import JudgedMetric, Judgement
from specbench.reports.experiments.verdict_table import NO_VERDICT

from .plots import Intervals, Plot, Slopes

SIGNS = {IMPROVED: "▲", REGRESSED: "▼", EQUIVALENT: "~", INCONCLUSIVE: "?"}
_MOST_PAIRS = 40  # of a metric, drawn as lines: prompts can be hundreds


def verdict_charts(record: Judgement, n: int = 0) -> tuple[Plot, ...]:
    """Of `ab.json`; `n`: number of the experiment on its page. Nothing is drawn of what has no figures."""
    found: list[Plot] = []
    changes, pairs = interval_frame(record), slope_frame(record)
    if len(changes):
        found.append(
            Intervals(
                name=f"verdict-{n + 1}",
                title="Change of B against A",
                description="Diamonds: change with its 95% interval. Grey: changes too small to matter. Short strokes: "
                "the least effect, either way, that so many pairs would have found.",
                frame=changes,
                x_title="change of B against A",
                y_title="metric",
                margin=record.plan.min_effect,
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
    return tuple(found)


def interval_frame(record: Judgement) -> pd.DataFrame:
    """y: metric, x: change of B against A as a fraction, with its interval, the least effect and the verdict."""
    rows = [
        {
            "y": c.metric.name,
            "x": c.change,
            "low": c.low,
            "high": c.high,
            "least": c.least_effect,
            "word": _word(c, record),
        }
        for c in record.metrics
        if c.change is not None
    ]
    return pd.DataFrame(rows)


def slope_frame(record: Judgement) -> pd.DataFrame:
    """Pairs of the gated metrics, at most _MOST_PAIRS evenly among them: y is the value against A's mean, minus one."""
    rows = []
    for c in record.metrics:
        pairs = c.pairs
        if not c.metric.gated or len(pairs) < 2:
            continue
        mean = sum(a for a, _ in pairs) / len(pairs)
        for n in sorted({i * len(pairs) // _MOST_PAIRS for i in range(_MOST_PAIRS)}):
            pair = pairs[n]
            name = f"{c.metric.pairs.removesuffix('s')} {n + 1}"
            rows += [
                {"facet": c.metric.name, "pair": name, "x": side, "y": value / mean - 1, "value": value}
                for side, value in zip("AB", pair, strict=True)
            ]
    return pd.DataFrame(rows)


def signed_word(verdict: str) -> str:
    """`▲ improved`."""
    return f"{SIGNS.get(verdict, '')} {verdict}".strip()


def _word(c: JudgedMetric, record: Judgement) -> str:
    if record.verdict in NO_VERDICT:
        return record.verdict
    return signed_word(c.verdict) if c.metric.gated else "exploratory"
