"""The figures of an arm by category of the prompts: by data set if a run has several, else by kind of question."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from specbench.harness.metrics.acceptance import acceptance_metrics
from specbench.harness.metrics.grouping import with_prompts
from specbench.harness.metrics.latency import tpot_by_request_ms
from specbench.harness.metrics.speedup import tpot_speedup
from specbench.harness.stats.spread import spread
from specbench.harness.store.results import CategoryFigures
from specbench.harness.store.schema import Frames
from specbench.workloads.mixture import is_mixture

MAX_CATEGORIES = 20


def category_figures(
    label: str, baseline: str | None, measured: Collection[tuple[str, int]], frames: Frames
) -> tuple[CategoryFigures, ...]:
    """Arm `label` on the prompts of each category, in the order of submission; empty if the run is not worth dividing.

    Acceptance is over all repeats pooled, with its interval over the category's prompts; TPOT the median over repeats
    of the mean over requests; the speed-up against arm `baseline` (None: there is none) is that of TPOT. `measured`:
    (arm, repeat) of the blocks that did not fail.
    """
    names = divided_by(frames)
    steps = frames.steps[frames.steps["arm"] == label] if names else frames.steps
    of_request = frames.requests["prompt_id"].map(frames.categories) if names else pd.Series(dtype=str)
    repeats = [repeat for arm, repeat in measured if arm == label]
    found = []
    for name in names:
        requests = frames.requests[of_request == name]
        mine = requests[(requests["arm"] == label) & requests["repeat"].isin(repeats)]
        if mine.empty:
            continue
        found.append(
            CategoryFigures(
                name=name,
                num_prompts=mine["prompt_id"].nunique(),
                acceptance=acceptance_metrics(mine, with_prompts(steps, mine), cluster="prompt_id"),
                tpot_ms=_tpot_ms(mine),
                speedup=tpot_speedup(label, baseline, requests) if baseline else None,
            )
        )
    return tuple(found)


def divided_by(frames: Frames) -> list[str]:
    """The categories of the run's prompts: all data sets of a run with several. Other categories must be two to
    MAX_CATEGORIES, with two prompts each on average: with fewer, nothing can be said about one."""
    names = list(dict.fromkeys(frames.categories.values()))
    if is_mixture(frames.categories):
        return names
    return names if 2 <= len(names) <= MAX_CATEGORIES and 2 * len(names) <= len(frames.categories) else []


def _tpot_ms(requests: pd.DataFrame) -> float | None:
    """None without a request of two tokens or more."""
    by_repeat = tpot_by_request_ms(requests).groupby(requests["repeat"]).mean().dropna()
    return spread(by_repeat.tolist()).median if len(by_repeat) else None
