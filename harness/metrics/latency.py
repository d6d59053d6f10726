"""Latency and throughput of one block, from its requests and its step log. Times in ms, rates per second.

`requests` and `steps` have the columns of `schema.py` for one arm and one repeat. Times are host-visible unless a name
says `device`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from specbench.harness.stats.spread import percentiles, under
from specbench.harness.store.schema import FAILED_ARM_REQUEST_ID

RANKS = (50, 90, 95, 99)
"""Percentiles of TTFT, TPOT, ITL and E2EL."""
_NS_PER_MS = 1e6
_NS_PER_S = 1e9
_MOMENTS = ("t_submit_ns", "t_first_ns", "t_last_ns", "t_first_device_ns", "t_last_device_ns")
_OF_ALIVE = ("request_id", "t_last_ns", "num_output_tokens")
_TIMES = ["request_id", "num_output_tokens", *_MOMENTS]


def measured(requests: pd.DataFrame) -> pd.DataFrame:
    """Rows of the blocks that did not fail as a whole."""
    return requests[requests["request_id"] != FAILED_ARM_REQUEST_ID]


def served(requests: pd.DataFrame) -> pd.DataFrame:
    """Requests that produced output and were not aborted: finish reason stop or length, at least one token."""
    return requests[_is_served(requests)]


def _is_served(requests: pd.DataFrame) -> np.ndarray:
    reasons = requests["finish_reason"].to_numpy(dtype=object)
    return ((reasons == "stop") | (reasons == "length")) & (requests["num_output_tokens"].to_numpy() >= 1)


def tpot_by_request_ms(requests: pd.DataFrame) -> pd.Series:
    """TPOT of each served request with two or more tokens: (t_last - t_first) / (n_out - 1); others are left out."""
    done = served(requests)
    return pd.Series(_tpot_ms(done), index=done.index[_is_long(done)])


def _tpot_ms(done: pd.DataFrame, clock: str = "") -> np.ndarray:
    """`clock` is empty for host-visible times and `_device` for completion on the device."""
    long = _is_long(done)
    num_gaps = done["num_output_tokens"].to_numpy()[long] - 1
    first_ns, last_ns = (done[f"t_{end}{clock}_ns"].to_numpy()[long] for end in ("first", "last"))
    return (last_ns - first_ns) / num_gaps / _NS_PER_MS


def _is_long(done: pd.DataFrame) -> np.ndarray:
    return done["num_output_tokens"].to_numpy() >= 2


def ttft_by_request_ms(requests: pd.DataFrame) -> pd.Series:
    """First token - submit, of each served request."""
    return _since_submit_ms(served(requests), "t_first_ns")


def e2el_by_request_ms(requests: pd.DataFrame) -> pd.Series:
    """Last token - submit, of each served request."""
    return _since_submit_ms(served(requests), "t_last_ns")


def _since_submit_ms(done: pd.DataFrame, moment: str) -> pd.Series:
    return (done[moment] - done["t_submit_ns"]) / _NS_PER_MS


def window_s(requests: pd.DataFrame) -> float:
    """From the first submit to the last token of any request; 0 without requests."""
    last_ns = requests["t_last_ns"][requests["num_output_tokens"].to_numpy() >= 1]
    return (last_ns.max() - requests["t_submit_ns"].min()) / _NS_PER_S if len(last_ns) else 0.0


def latency_metrics(requests: pd.DataFrame, steps: pd.DataFrame) -> dict[str, float | None]:
    """User-visible times; absent figures (no such request) are None.

    ttft_ms: first token - submit. tpot_ms: see tpot_by_request_ms; `mean` over requests, `weighted` over tokens (sum of
    decode times / sum of (n_out - 1)), and percentiles over requests. e2e_per_token_ms: mean over requests of (t_last -
    submit) / n_out, never called TPOT. e2el_ms: t_last - submit, over requests. itl_ms: burst ITL, a chunk of m tokens
    is one gap and m - 1 zeros, so its mean is the weighted TPOT and its tail the real stall. icl_ms: gaps between
    chunks, where a chunk is everything that became visible at one moment. tps_per_user: 1 / mean TPOT.
    """
    done = requests[_TIMES][_is_served(requests)]
    tokens = done["num_output_tokens"].to_numpy()
    tpot = _tpot_ms(done)
    ttft, e2el = (_since_submit_ms(done, name).to_numpy() for name in ("t_first_ns", "t_last_ns"))
    mean_tpot_ms = pd.Series(tpot).mean()  # of those that are known
    burst, chunks = _gaps_ms(steps, done["request_id"].to_numpy())
    return {
        "ttft_ms.mean": _mean(ttft),
        **under("ttft_ms", percentiles(ttft, *RANKS)),
        "ttft_device_ms.mean": _mean(_since_submit_ms(done, "t_first_device_ns")),
        "tpot_ms.mean": _mean(tpot),
        "tpot_ms.weighted": _weighted_tpot_ms(done),
        **under("tpot_ms", percentiles(tpot, *RANKS)),
        "tpot_device_ms.mean": _mean(_tpot_ms(done, "_device")),
        **under("e2el_ms", percentiles(e2el, *RANKS)),
        "e2e_per_token_ms": _mean(e2el / tokens),
        "itl_ms.mean": _mean(burst),
        **under("itl_ms", percentiles(burst, *RANKS)),
        "icl_ms.mean": _mean(chunks),
        **under("icl_ms", percentiles(chunks, 50, 99)),
        "tps_per_user": 1e3 / mean_tpot_ms if mean_tpot_ms > 0 else None,
    }


def throughput_metrics(requests: pd.DataFrame, steps: pd.DataFrame) -> dict[str, float | None]:
    """Tokens and requests per second.

    tps: output tokens of all requests / window, the window from the first submit to the last token. requests_per_s:
    served requests / window. steady_tps: tokens that became visible between the first and the last moment at which the
    number of requests in service was at its maximum, divided by that time; a request is in service from the launch of
    its first step to its last token. None if the step log is empty.
    """
    is_alive = requests["num_output_tokens"].to_numpy() >= 1
    ids, last_ns, num_tokens = (requests[name].to_numpy()[is_alive] for name in _OF_ALIVE)
    duration_s = window_s(requests)
    return {
        "window_s": duration_s,
        "tps": num_tokens.sum() / duration_s if duration_s > 0 else None,
        "requests_per_s": int(_is_served(requests).sum()) / duration_s if duration_s > 0 else None,
        **_steady(ids, last_ns, steps),
    }


def _weighted_tpot_ms(done: pd.DataFrame) -> float | None:
    num_gaps = (done["num_output_tokens"].to_numpy() - 1).sum()
    total_ms = np.nansum(done["t_last_ns"].to_numpy() - done["t_first_ns"].to_numpy()) / _NS_PER_MS
    return total_ms / num_gaps if num_gaps else None


def _gaps_ms(steps: pd.DataFrame, served_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Burst ITL and ICL samples, pooled over served requests."""
    ids, moments_ns, emitted = (steps[name].to_numpy() for name in ("request_id", "t_host_ns", "num_emitted"))
    kept = (emitted > 0) & np.isin(ids, served_ids) & ~np.isnan(moments_ns)
    order = np.lexsort((moments_ns[kept], ids[kept]))
    ids, moments_ns = ids[kept][order], moments_ns[kept][order]
    same_request, later_ns = ids[1:] == ids[:-1], np.diff(moments_ns)
    gaps = later_ns[same_request & (later_ns > 0)] / _NS_PER_MS
    num_chunks = len(ids) - int((same_request & (later_ns == 0)).sum())
    num_zeros = int(emitted[kept].sum()) - num_chunks
    return np.concatenate([gaps, np.zeros(num_zeros)]), gaps


def _steady(ids: np.ndarray, end_ns: np.ndarray, steps: pd.DataFrame) -> dict[str, float | None]:
    """`ids`, `end_ns`: of the requests with a token, and of their last ones."""
    if steps.empty or not len(ids):
        return {"steady_tps": None, "max_in_flight": None}
    known, start_ns = _first_starts_ns(steps, ids)
    times = np.concatenate([start_ns, end_ns[known]])
    changes = np.repeat([1, -1], known.sum())
    order = np.lexsort((changes, times))  # at one moment, ends before starts
    in_flight = np.cumsum(changes[order])
    at_max = np.flatnonzero(in_flight == in_flight.max(initial=0))
    if not at_max.size or at_max[-1] + 1 == in_flight.size:  # no request took any time
        return {"steady_tps": None, "max_in_flight": None}
    first_ns, last_ns = times[order][at_max[0]], times[order][at_max[-1] + 1]
    moments_ns = steps["t_host_ns"].to_numpy()
    visible = np.nansum(steps["num_emitted"].to_numpy()[(moments_ns > first_ns) & (moments_ns <= last_ns)])
    duration_s = (last_ns - first_ns) / _NS_PER_S
    return {"steady_tps": visible / duration_s if duration_s > 0 else None, "max_in_flight": int(in_flight.max())}


def _first_starts_ns(steps: pd.DataFrame, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of `ids` have a step with a known start, and the earliest start of each that has."""
    step_ids, start_ns = (steps[name].to_numpy() for name in ("request_id", "t_start_ns"))
    is_known = ~np.isnan(start_ns)
    step_ids, start_ns = step_ids[is_known], start_ns[is_known]
    order = np.lexsort((start_ns, step_ids))
    started, first = np.unique(step_ids[order], return_index=True)
    has_started = np.isin(ids, started)
    return has_started, start_ns[order][first][np.searchsorted(started, ids[has_started])]


def _mean(values: pd.Series | np.ndarray) -> float | None:
    """None if there are none, or if the engine does not report them."""
    return float(np.mean(values)) if len(values) and not np.isnan(values).any() else None
