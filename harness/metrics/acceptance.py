"""Acceptance figures from the step log, under one definition each, and the numbers vLLM and SGLang would print.

Notation, over rows of requests that were not in prefill: k drafts offered along the longest path (`draft_depth`), j
accepted of them before truncation at a stop token or limit (`num_accepted`), e tokens kept (`num_emitted`). A row with
k >= 1 is a verification; a row with k = 0 is a forward without draft.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from specbench.harness.metrics.acceptance_groups import acceptance_groups
from specbench.harness.metrics.grouping import both_group_numbers, group_numbers
from specbench.harness.stats.spread import ratio_interval
from specbench.harness.store.results import (
    Acceptance,
    AcceptanceInterval,
    PeerAcceptance,
    SglangAcceptance,
    VllmAcceptance,
)

_COUNTS = ("num_proposed", "draft_depth", "num_accepted", "num_emitted")
_COLUMNS = ("repeat", "request_id", "prompt_id", "step", "is_prefill", "truncated", *_COUNTS)


def acceptance_metrics(requests: pd.DataFrame, steps: pd.DataFrame, cluster: str = "request_id") -> Acceptance:
    """Acceptance of one block, or of several blocks of one arm pooled.

    cluster: column of `steps` whose values are resampled for the interval (`request_id` inside a block; pooled blocks
    need `prompt_id`, since a prompt's repeats are not independent).

    * acceptance_length: 1 + sum(j) / #{k >= 1}, pooled; `acceptance_length_interval` its 95 % cluster bootstrap;
      `acceptance_length_by_request` the mean over requests of the same ratio. None without any draft.
    * tokens_per_forward: sum(e) / number of rows, forwards without draft included: what speed follows.
    * marginal[i]: #{j >= i} / #{k >= i}; conditional[i]: #{j >= i} / #{j >= i-1, k >= i}, i from 1.
    * draft_acceptance_rate: sum(j) / sum(k), chains only (None for trees); accepted_depth_rate: the same over path
      depth; accepted_per_verified: sum(j + 1) / sum(nodes + 1).
    * accepted_histogram[j]: number of verifications that accepted j.
    * num_truncated_tokens: sum(j + 1 - e) over truncated rows; like the numbers of forwards, None without a step log.
    * peers.vllm: 1 + sum(j) / #{k >= 1}; sum(j) / sum(nodes); per position #{j >= i} / #{k >= 1}, whatever k.
    * peers.sglang: `accept_length` of its log, sum(j + 1) / forwards; `accept_rate`, sum(j) / (forwards x most nodes);
      `avg_spec_accept_length`, the mean over requests of output tokens / forwards, prefill token and truncation
      included.
    * groups: acceptance by context length and by temperature (acceptance_groups.py).
    """
    steps, rows, verified = _forwards(steps)
    depth, accepted = (verified[name].to_numpy().astype(int) for name in ("draft_depth", "num_accepted"))
    num_accepted, num_verified = int(accepted.sum()), len(verified)
    nodes, is_chain = int(verified["num_proposed"].sum()), bool((verified["num_proposed"] == depth).all())
    return Acceptance(
        acceptance_length=1 + num_accepted / num_verified if num_verified else None,
        acceptance_length_by_request=_by_request(verified),
        acceptance_length_interval=_interval(verified, cluster),
        tokens_per_forward=float(rows["num_emitted"].sum() / len(rows)) if len(rows) else None,
        draft_acceptance_rate=num_accepted / nodes if num_verified and is_chain else None,
        accepted_depth_rate=num_accepted / int(depth.sum()) if num_verified else None,
        accepted_per_verified=(num_accepted + num_verified) / (nodes + num_verified) if num_verified else None,
        marginal=_marginal(depth, accepted),
        conditional=_conditional(depth, accepted),
        accepted_histogram=tuple(np.bincount(accepted).tolist()) if num_verified else (),
        num_verifications=num_verified if len(steps) else None,
        num_forwards_without_draft=len(rows) - num_verified if len(steps) else None,
        num_truncated_tokens=_num_truncated(rows) if len(steps) else None,
        peers=PeerAcceptance(vllm=_vllm(verified), sglang=_sglang(requests, rows)),
        groups=acceptance_groups(requests, steps),
    )


def drafts_by_position(steps: pd.DataFrame) -> tuple[int, ...]:
    """How many drafts at each position had all earlier ones accepted: what the conditional rates are shares of."""
    verified = _forwards(steps)[2]
    return _reached(*(verified[name].to_numpy().astype(int) for name in ("draft_depth", "num_accepted")))


def _forwards(steps: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The engine's rows; those of requests that were not in prefill; and of these, the verifications."""
    steps = steps[[name for name in _COLUMNS if name in steps]]
    if steps["num_accepted"].hasnans:
        steps = steps[steps["num_accepted"].notna()]  # for some engines, the clients' chunks are stored too
    rows = steps[~steps["is_prefill"].to_numpy().astype(bool)]
    return steps, rows, rows[rows["draft_depth"].to_numpy() >= 1]


def _num_truncated(rows: pd.DataFrame) -> int:
    truncated, accepted, emitted = (rows[name].to_numpy() for name in ("truncated", "num_accepted", "num_emitted"))
    is_truncated = truncated.astype(bool)
    return int(np.nansum(accepted[is_truncated] + 1 - emitted[is_truncated]))


def _by_request(verified: pd.DataFrame) -> float | None:
    if verified.empty:
        return None
    requests = group_numbers(verified[name].to_numpy() for name in ("repeat", "request_id") if name in verified)
    return float(1 + (np.bincount(requests, verified["num_accepted"]) / np.bincount(requests)).mean())


def _interval(verified: pd.DataFrame, cluster: str) -> AcceptanceInterval | None:
    if verified.empty:
        return None
    clusters = group_numbers([verified[cluster].to_numpy()])
    interval = ratio_interval(np.bincount(clusters, verified["num_accepted"]), np.bincount(clusters))
    if interval is None:
        return None
    return AcceptanceInterval(
        low=1 + interval.low,
        high=1 + interval.high,
        num_clusters=interval.num_clusters,
        method=interval.describe({"request_id": "requests", "prompt_id": "prompts"}.get(cluster, cluster)),
    )


def _marginal(depth: np.ndarray, accepted: np.ndarray) -> tuple[float, ...]:
    positions = range(1, int(depth.max(initial=0)) + 1)
    return tuple(float((accepted >= i).sum() / (depth >= i).sum()) for i in positions)


def _conditional(depth: np.ndarray, accepted: np.ndarray) -> tuple[float | None, ...]:
    """None for a position that no draft reached."""
    reached = _reached(depth, accepted)
    return tuple(float((accepted >= i).sum() / n) if n else None for i, n in enumerate(reached, 1))


def _reached(depth: np.ndarray, accepted: np.ndarray) -> tuple[int, ...]:
    positions = range(1, int(depth.max(initial=0)) + 1)
    return tuple(int(((accepted >= i - 1) & (depth >= i)).sum()) for i in positions)


def _vllm(verified: pd.DataFrame) -> VllmAcceptance:
    """vLLM v1/spec_decode/metrics.py: counters over requests and steps that had drafts."""
    if verified.empty:
        return VllmAcceptance()
    accepted, depth, nodes = (verified[name].to_numpy() for name in ("num_accepted", "draft_depth", "num_proposed"))
    positions = range(1, int(depth.max()) + 1)
    return VllmAcceptance(
        mean_acceptance_length=float(1 + accepted.sum() / len(accepted)),
        draft_acceptance_rate=float(accepted.sum() / np.nansum(nodes)),
        per_position=tuple(float((accepted >= i).mean()) for i in positions),
    )


def _sglang(requests: pd.DataFrame, rows: pd.DataFrame) -> SglangAcceptance:
    """SGLang's scheduler log and per-request meta info (spec_verify_ct, avg_spec_accept_length)."""
    if rows.empty:
        return SglangAcceptance()
    most_nodes, num_accepted = int(rows["num_proposed"].max()), rows["num_accepted"].sum()
    per_request = _tokens_per_forward(requests, rows)
    return SglangAcceptance(
        accept_length=float((num_accepted + len(rows)) / len(rows)),
        accept_rate=float(num_accepted / (len(rows) * most_nodes)) if most_nodes else None,
        avg_spec_accept_length=float(per_request.mean()) if len(per_request) else None,
    )


def _tokens_per_forward(requests: pd.DataFrame, rows: pd.DataFrame) -> np.ndarray:
    """Output tokens / forwards of each request that has both."""
    keys = [name for name in ("repeat", "request_id") if name in rows and name in requests]
    of_requests, of_rows = both_group_numbers(requests, rows, keys)
    forwards = np.bincount(of_rows, minlength=len(requests) + len(rows))
    tokens = np.full(len(forwards), np.nan)
    tokens[of_requests] = requests["num_output_tokens"]
    known = (forwards > 0) & ~np.isnan(tokens)
    return tokens[known] / forwards[known]
