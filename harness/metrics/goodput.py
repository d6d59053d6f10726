"""Goodput: requests that met every limit on their latencies, as counted by `--goodput` of `vllm bench serve`.

It is derived from stored rows, so the limits can be chosen after the run.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from specbench.harness.metrics.counters import has_void_ttft
from specbench.harness.metrics.latency import (
    e2el_by_request_ms,
    served,
    tpot_by_request_ms,
    ttft_by_request_ms,
    window_s,
)
from specbench.harness.stats.slos import Slos
from specbench.harness.stats.spread import spread
from specbench.harness.store.results import Figures, Results

REQUESTS_PER_S, SHARE = "goodput.requests_per_s", "goodput.share"
_TIMES_MS = {"ttft": ttft_by_request_ms, "tpot": tpot_by_request_ms, "e2el": e2el_by_request_ms}


def goodput(requests: pd.DataFrame, slos: Slos) -> Figures:
    """For one block: requests that met all limits / window, and their share of all requests, failed ones included.

    A request of one token has no TPOT and meets any limit on it, as in vLLM. None without a request or without time.
    """
    done = served(requests)
    kept = pd.Series(True, index=done.index)
    for key, most_ms in slos.items():
        kept &= _TIMES_MS[key](requests).reindex(done.index, fill_value=0.0) <= most_ms
    duration_s = window_s(requests)
    return {
        REQUESTS_PER_S: float(kept.sum() / duration_s) if duration_s > 0 else None,
        SHARE: float(kept.sum() / len(requests)) if len(requests) else None,
    }


def with_goodput(found: Results, requests: pd.DataFrame, slos: Slos) -> Results:
    """The results with the goodput of every block and arm; unchanged without limits. `requests`: of all blocks.

    A block whose TTFT is void, since a prefix cache served parts of prompts, has no goodput with a limit on TTFT."""
    if not slos:
        return found
    of_block = {at: own for at, own in requests.groupby(["arm", "repeat"], sort=False)}
    blocks = []
    for block in found.blocks:
        own = of_block.get((block.arm, block.repeat), requests.iloc[:0])
        is_void = "ttft" in slos and has_void_ttft(block.figures.values, "counters.")
        kept = dict.fromkeys((REQUESTS_PER_S, SHARE)) if is_void else goodput(own, slos)
        values = {**block.figures.values, **kept}
        blocks.append(replace(block, figures=replace(block.figures, values=values)))
    arms = []
    for arm in found.arms:
        mine = [block.figures.values for block in blocks if block.arm == arm.label]
        known = {name: [v for values in mine if (v := values[name]) is not None] for name in (REQUESTS_PER_S, SHARE)}
        spreads = {name: spread(values) for name, values in known.items() if values}
        arms.append(replace(arm, spreads={**arm.spreads, **spreads}))
    return replace(found, arms=tuple(arms), blocks=tuple(blocks))
