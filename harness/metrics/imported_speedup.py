"""The speed-up in TPOT of an imported arm. Its interval is over requests, since a file has a single run.

The interval covers neither the drift of the machine between runs nor a repeated run; reports must say so.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from specbench.harness.metrics.latency import tpot_by_request_ms
from specbench.harness.metrics.speedup import tpot_pairs
from specbench.harness.stats.spread import ratio_interval
from specbench.harness.store.results import Speedup


def over_requests(label: str, found: Speedup, requests: pd.DataFrame) -> Speedup:
    """`found` with the interval of paired requests; if no pair has a TPOT, with the ratio of two samples."""
    if found.tpot_ratio is None:
        return _of_two_samples(label, found, requests)
    by_prompt = tpot_pairs(label, found.baseline, requests).groupby("prompt_id")["log_ratio"].mean()
    interval = ratio_interval(by_prompt, np.ones(len(by_prompt)))
    how = interval.describe("requests of one run each") if interval else "too few requests for an interval"
    return replace(
        found,
        tpot_ratio_low=float(np.exp(interval.low)) if interval else None,
        tpot_ratio_high=float(np.exp(interval.high)) if interval else None,
        method=f"geometric mean of paired TPOT ratios; {how}",
    )


def _of_two_samples(label: str, found: Speedup, requests: pd.DataFrame) -> Speedup:
    from scipy import stats  # half a second, which a run of our own does not need

    logs = [np.log(tpot[tpot > 0]) for tpot in (_tpot_ms(arm, requests) for arm in (found.baseline, label))]
    if not all(map(len, logs)):
        return found
    can_tell = min(map(len, logs)) >= 2
    interval = stats.ttest_ind(*logs, equal_var=False).confidence_interval() if can_tell else None
    return replace(
        found,
        tpot_ratio=float(np.exp(logs[0].mean() - logs[1].mean())),
        tpot_ratio_low=float(np.exp(interval.low)) if interval else None,
        tpot_ratio_high=float(np.exp(interval.high)) if interval else None,
        method="ratio of geometric means of TPOT over requests that are not paired; "
        + ("Welch's 95% interval" if interval else "too few requests for an interval"),
    )


def _tpot_ms(arm: str, requests: pd.DataFrame) -> pd.Series:
    return tpot_by_request_ms(requests[requests["arm"] == arm])
