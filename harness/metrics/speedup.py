"""How much faster an arm is than the baseline arm of the same run, on the same prompts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from specbench.harness.metrics.latency import tpot_by_request_ms
from specbench.harness.metrics.same_requests import pair_requests, same_output
from specbench.harness.stats.spread import mean_interval
from specbench.harness.store.results import Figures, Speedup


def speedup(
    label: str, baseline: str, blocks: Mapping[tuple[str, int], Figures], requests: pd.DataFrame
) -> Speedup | None:
    """Arm `label` against arm `baseline`, None if that was not measured. `blocks`: figures by (arm, repeat)."""
    tps = {
        name: {repeat: value for (arm, repeat), found in blocks.items() if arm == name and (value := found["tps"])}
        for name in (label, baseline)
    }
    if not tps[baseline]:
        return None
    ratios = [tps[label][r] / tps[baseline][r] for r in tps[label] if r in tps[baseline]]
    medians = [float(np.median(list(tps[name].values()))) if tps[name] else None for name in (label, baseline)]
    pairs = tpot_pairs(label, baseline, requests)
    by_prompt = pairs.groupby("prompt_id")["log_ratio"].mean()
    interval = mean_interval(by_prompt)
    return Speedup(
        baseline=baseline,
        tps_ratio=medians[0] / medians[1] if medians[0] and medians[1] else None,
        tps_ratio_min=min(ratios, default=None),
        tps_ratio_max=max(ratios, default=None),
        tpot_ratio=float(np.exp(by_prompt.mean())) if len(by_prompt) else None,
        tpot_ratio_low=float(np.exp(interval.low)) if interval else None,
        tpot_ratio_high=float(np.exp(interval.high)) if interval else None,
        num_prompts=len(by_prompt),
        num_pairs=len(pairs),
        same_output_rate=float(pairs["same_output"].mean()) if len(pairs) else None,
        method="geometric mean of paired TPOT ratios; "
        + (interval.describe("prompts") if interval else "too few prompts for an interval"),
    )


def tpot_pairs(label: str, baseline: str, requests: pd.DataFrame) -> pd.DataFrame:
    """Requests of both arms that are the same request (`pair_requests`) and have a TPOT each; log_ratio: of baseline /
    arm."""
    sides = []
    for name in (baseline, label):
        rows = requests[requests["arm"] == name].reset_index(drop=True)
        sides.append(rows.assign(tpot_ms=tpot_by_request_ms(rows)))
    pairs = pair_requests(sides[0], sides[1], ["output_sha256", "tpot_ms"])
    pairs = pairs[(pairs["tpot_ms_a"] > 0) & (pairs["tpot_ms_b"] > 0)]
    return pairs.assign(log_ratio=np.log(pairs["tpot_ms_a"] / pairs["tpot_ms_b"]), same_output=same_output(pairs))
