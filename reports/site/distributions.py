"""Distributions of a run: TPOT over its requests, accepted length over the rounds of an output.

Both come from the raw tables, so they take as long as reading the whole run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
import scipy  # its stats take half a second, and are imported at first use

from specbench.harness.metrics.latency import tpot_by_request_ms
from specbench.harness.metrics.metrics import measure_blocks
from specbench.harness.store.results import Figures
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.schema import Frames
from specbench.reports.cells import row_name
from specbench.reports.charts.chart import Axis, Chart, Styles, drawable

from .runs import SiteRun, shown_labels

_MAX_POINTS, _MAX_BINS = 40, 24  # per line
_MIN_PROMPTS, _MIN_FOR_INTERVAL = 2, 5  # in a bin


def distribution_charts(run: SiteRun, styles: Styles) -> tuple[Chart, ...]:
    """None for a run without served requests. Raises the errors of reading the raw tables."""
    frames = RunDirectory.open(run.path).frames()
    tpot, lengths = tpot_frame(run, frames), length_frame(run, frames)
    return drawable(
        Chart(
            name="tpot",
            title="TPOT of the requests",
            description="Share of requests with at most this TPOT, all repeats pooled: the steeper, the more uniform.",
            frame=tpot,
            x=Axis(title="TPOT, ms"),
            y=Axis(title="share of requests", unit="share", range=(0, 1.02)),
            marks="steps",
            styles=styles.of(tpot["series"]),
        ),
        Chart(
            name="lengths",
            title="Acceptance length over the course of an answer",
            description="Tokens per verification, the bonus token included: means over prompts, with a 95% interval "
            f"for {_MIN_FOR_INTERVAL} or more prompts. Prompts with short answers appear in the first rounds only.",
            frame=lengths,
            x=Axis(title="round of the answer", scale="whole"),
            y=Axis(title="tokens per verification"),
            marks="lines",
            styles=styles.of(lengths["series"]),
        ),
    )


def latencies(run: SiteRun) -> dict[str, Figures]:
    """For each arm's row, medians over repeats of all figures, derived again. Raises the errors of reading the raw
    tables."""
    blocks = measure_blocks(RunDirectory.open(run.path).frames())
    found: dict[str, Figures] = {}
    for name, label in _arms(run):
        own = pd.DataFrame([figures.values for (arm, _), figures in blocks.items() if arm == label], dtype=float)
        found[name] = own.median().dropna().to_dict()
    return found


def tpot_frame(run: SiteRun, frames: Frames) -> pd.DataFrame:
    """series, x: TPOT in ms, y: share of the arm's served requests with at most this TPOT; quantiles if there are many
    requests."""
    rows = []
    for name, label in _arms(run):
        values = np.sort(tpot_by_request_ms(frames.requests[frames.requests["arm"] == label]).to_numpy(dtype=float))
        n = len(values)
        picked = sorted({round((i + 1) * n / min(n, _MAX_POINTS)) for i in range(min(n, _MAX_POINTS))})
        rows += [(name, values[i - 1], i / n) for i in picked]
    return pd.DataFrame(rows, columns=["series", "x", "y"])


def length_frame(run: SiteRun, frames: Frames) -> pd.DataFrame:
    """series, x: first round of a bin, y: mean over prompts of their mean accepted length in the bin, low, high: its
    95% t interval over prompts (nan for few; a length is never below 1), note: the bin."""
    steps = frames.steps[(frames.steps["num_proposed"] > 0) & ~frames.steps["is_prefill"].astype(bool)]
    keys = ["arm", "repeat", "request_id"]
    steps = steps.sort_values("step").merge(frames.requests[[*keys, "prompt_id"]], on=keys)
    steps = steps.assign(round=steps.groupby(keys).cumcount(), length=steps["num_accepted"] + 1)
    width = 1 if steps.empty else -(-(int(steps["round"].max()) + 1) // _MAX_BINS)
    rows = []
    for name, label in _arms(run):
        own = steps[steps["arm"] == label]
        for first, inside in own.groupby(own["round"] // width * width):
            by_prompt = inside.groupby("prompt_id")["length"].mean()
            if len(by_prompt) >= _MIN_PROMPTS:
                rows.append((name, int(first) + 1, *_mean(by_prompt), _bin(int(first), width, len(by_prompt))))
    return pd.DataFrame(rows, columns=["series", "x", "y", "low", "high", "note"])


def _mean(by_prompt: pd.Series) -> tuple[float, float, float]:
    """The mean with the ends of its interval."""
    mean, n = float(by_prompt.mean()), len(by_prompt)
    if n < _MIN_FOR_INTERVAL:
        return mean, math.nan, math.nan
    half = float(scipy.stats.t.ppf(0.975, n - 1) * by_prompt.std() / math.sqrt(n))
    return mean, max(mean - half, 1.0), mean + half


def _bin(first: int, width: int, num_prompts: int) -> str:
    rounds = f"round {first + 1}" if width == 1 else f"rounds {first + 1} to {first + width}"
    return f"{rounds}, {num_prompts} prompts"


def _arms(run: SiteRun) -> Iterator[tuple[str, str]]:
    """(name of its row, label in the raw tables) of every arm."""
    names = shown_labels(run.record)
    rows = {arm.label: row_name(arm) for arm in run.arms}
    for arm in run.record.arms:
        yield rows.get(names.get(arm.label, arm.label), arm.label), arm.label
