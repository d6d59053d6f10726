"""Where the time of a block went: rounds, phases, host synchronisations, and whether the parts add up to TPOT.

A decode round is a step of kind `decode`. Decode figures come from decode rounds; mixed steps are counted separately.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from specbench.harness.metrics.grouping import starts_of_runs
from specbench.harness.stats.spread import percentiles, under

RESIDUAL_LIMIT = 0.03
"""A residual beyond this fraction of TPOT means that the phases do not explain the speed."""

_NS_PER_MS = 1e6
_GAP = "gap"
_SHARED = ["kind", "t_start_ns", "t_host_ns", "t_device_ns", "batch_size"]
_SHARED += ["num_rows", "num_padded_rows", "num_draft_rows", "graph", "num_syncs"]
"""Columns of `steps` that have the same value in all rows of a step."""
_OF_ROUNDS = [*_SHARED[3:8], "num_syncs", "round_ns", "gap_ns", "emitted", "drafts"]


@dataclass(frozen=True, slots=True)
class PhaseRounds:
    """ms by decode round (rows) and phase (columns), for phases timed without and with additional synchronisations."""

    plain: pd.DataFrame
    instrumented: pd.DataFrame


def phase_rounds(phases: pd.DataFrame, table: pd.DataFrame) -> PhaseRounds:
    """The phase times of one block, from its phases and its `step_table`."""
    return PhaseRounds(_by_round(phases, table, instrumented=False), _by_round(phases, table, instrumented=True))


def step_table(steps: pd.DataFrame) -> pd.DataFrame:
    """One row per step, by step number: the shared columns, `emitted` tokens of the step, `drafts` offered a request
    that decodes (mean; nan if the engine does not report them), and three durations.

    round_ns: from the completion of the previous step (for the first: from the launch) to this one's, on the device; it
    includes the gap before the step, and the rounds of a block add up. host_ns: the same as seen by the host. gap_ns:
    from the moment the host had the previous result to this launch, 0 if launches overlap, nan for the first. If the
    engine does not report device times, both are as seen by the host; if it does not report steps, there are none.
    """
    if steps["t_start_ns"].hasnans:
        steps = steps[steps["t_start_ns"].notna()]
    number = steps["step"].to_numpy()
    order = np.argsort(number, kind="stable")
    starts = starts_of_runs(number[order])
    table: dict[str, Any] = {name: _first_known(steps[name].array.take(order), starts) for name in _SHARED}
    decoding, emitted = ~steps["is_prefill"].to_numpy().astype(bool), steps["num_emitted"].fillna(0).to_numpy()
    for name, summed in (("emitted", emitted), ("num_decoding", decoding)):
        table[name] = _sums(summed[order].astype(int), starts)
    proposed = np.where(decoding, steps["num_proposed"].to_numpy(dtype=float, na_value=np.nan), 0.0)[order]
    table["drafts"] = _sums(proposed, starts) / np.maximum(table["num_decoding"], 1)
    started_ns, host_ns, device_ns = (np.asarray(table[f"t_{name}_ns"]) for name in ("start", "host", "device"))
    done_ns = {"round_ns": np.where(np.isnan(device_ns), host_ns, device_ns), "host_ns": host_ns}
    for name, ended_ns in done_ns.items():
        before_ns = _shifted(ended_ns)
        table[name] = (ended_ns - np.where(np.isnan(before_ns), started_ns, before_ns)).clip(min=0)
    table["gap_ns"] = (started_ns - _shifted(host_ns)).clip(min=0)
    return pd.DataFrame(table, index=pd.Index(number[order][starts], name="step"))


def _first_known(values: ExtensionArray, starts: np.ndarray) -> ExtensionArray:
    """Of each step, whose rows begin at `starts`, the first value that is known."""
    known = ~np.asarray(values.isna())
    if known.all():
        return values.take(starts)
    at = np.where(known, np.arange(len(known)), len(known))
    first = np.minimum.reduceat(at, starts)
    return values.take(np.where(first < np.append(starts[1:], len(known)), first, -1), allow_fill=True)


def _sums(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Of each step, whose rows begin at `starts`."""
    return np.add.reduceat(values, starts) if len(starts) else values


def _shifted(values: np.ndarray) -> np.ndarray:
    """Each value's predecessor; nan for the first."""
    return np.concatenate([[np.nan], values[:-1]])[: len(values)]


def round_metrics(table: pd.DataFrame) -> dict[str, float | None]:
    """Figures of the decode rounds of a `step_table`; None without any, numbers of steps without any step.

    decode_tps: tokens of the decode rounds / time in them, gaps in front included. round_ms: their duration.
    syncs_per_round: blocking host synchronisations a round. rows_per_round, draft_rows_per_round: rows of the target's
    forward, padding included, and of the first drafter pass. row_padding: share of the target's rows that is padding.
    drafts_per_round: drafts offered to the verification of a request, mean over rounds: an n-gram look-up that finds
    nothing offers none, although its rows are computed. rounds_by_drafts: share of the rounds with each.
    """
    is_decode, is_mixed = (table["kind"].to_numpy(dtype=object) == kind for kind in ("decode", "mixed"))
    rounds = {name: table[name].to_numpy()[is_decode] for name in _OF_ROUNDS}
    total_s = np.nansum(rounds["round_ns"]) / 1e9
    padded = np.nansum(rounds["num_padded_rows"])
    known_gaps_ns = rounds["gap_ns"][~np.isnan(rounds["gap_ns"])]
    return {
        "decode_tps": rounds["emitted"].sum() / total_s if total_s > 0 else None,
        "round_ms.mean": _mean_ms(rounds["round_ns"]),
        **under("round_ms", percentiles(rounds["round_ns"] / _NS_PER_MS, 50, 99)),
        "gap_ms.mean": _mean_ms(rounds["gap_ns"]),
        **under("gap_ms", percentiles(known_gaps_ns / _NS_PER_MS, 50)),
        "syncs_per_round": _known_mean(rounds["num_syncs"]),
        "mean_batch_size": _known_mean(rounds["batch_size"]),
        "rows_per_round": _known_mean(rounds["num_padded_rows"]),
        "draft_rows_per_round": _known_mean(rounds["num_draft_rows"]),
        "row_padding": 1 - np.nansum(rounds["num_rows"]) / padded if padded else None,
        "num_decode_rounds": int(is_decode.sum()) if len(table) else None,
        "num_mixed_steps": int(is_mixed.sum()) if len(table) else None,
        "drafts_per_round": _known_mean(rounds["drafts"]),
        **under("rounds_by_drafts", _shares(rounds["drafts"])),
        **under("rounds_by_graph", table["graph"][is_decode].value_counts().to_dict()),
    }


def phase_metrics(rounds: PhaseRounds) -> dict[str, float | None]:
    """Median ms that a decode round spends in each phase, `plain` and `instrumented` separately."""
    return {**under("plain", _medians(rounds.plain)), **under("instrumented", _medians(rounds.instrumented))}


def accounting_identity(
    requests: pd.DataFrame, steps: pd.DataFrame, phases: PhaseRounds, table: pd.DataFrame, tpot_ms: float | None
) -> tuple[dict[str, float | None], str | None]:
    """TPOT against the prediction from independently measured parts.

    predicted = (sum of phase means + mean gap) / tokens per forward, plus the time requests spent in or waiting for
    mixed steps, per token. Means are over the forwards of requests (a round of B requests counts B times), since that
    is what a token waits for. The gap is the recorded phase `gap`, else the host's time between steps. tpot_ms is the
    token-weighted TPOT; residual = (tpot_ms - predicted) / tpot_ms.

    Plain phases are used if there are any; those of an instrumented capture, which is slower, give
    `residual_instrumented` instead. No residual without phases. The second part says which phases were used: plain,
    instrumented, None.
    """
    is_decode = ~steps["is_prefill"].to_numpy().astype(bool)
    num_tokens = np.nansum(steps["num_emitted"].to_numpy()[is_decode])
    num_forwards = int((steps["kind"].to_numpy(dtype=object)[is_decode] == "decode").sum())
    source, wide = _phases_for_identity(phases)
    parts_ms = _parts_ms(wide, table)
    if not parts_ms or not num_tokens or not tpot_ms:
        return {"tpot_ms": tpot_ms, "predicted_tpot_ms": None}, source
    mixed_ms = _mixed_request_ms(requests, table) / num_tokens
    predicted_ms = num_forwards * sum(parts_ms.values()) / num_tokens + mixed_ms
    figures = {
        "tpot_ms": tpot_ms,
        "predicted_tpot_ms": predicted_ms,
        "residual" if source == "plain" else "residual_instrumented": (tpot_ms - predicted_ms) / tpot_ms,
        **under("parts_ms", parts_ms),
        "tokens_per_decode_forward": num_tokens / num_forwards if num_forwards else None,
        "mixed_ms_per_token": mixed_ms,
    }
    return figures, source


def _by_round(phases: pd.DataFrame, table: pd.DataFrame, instrumented: bool) -> pd.DataFrame:
    """ms by decode round (rows) and phase (columns); repeated occurrences in a round add up.

    An instrumented capture may run outside the timed steps; its rounds are kept although the step log does not have
    them.
    """
    is_chosen = phases["instrumented"].to_numpy().astype(bool) == instrumented
    if not is_chosen.any():
        return pd.DataFrame()
    chosen = phases if is_chosen.all() else phases[is_chosen]
    at = table.index.get_indexer(chosen["step"])
    is_decode = (table["kind"].to_numpy(dtype=object) == "decode")[at] if len(table) else np.zeros(len(at), bool)
    chosen = chosen[((at >= 0) & is_decode) | ((at < 0) & instrumented)]
    steps, names, durations_ns = (chosen[name].to_numpy() for name in ("step", "phase", "duration_ns"))
    rows, columns = pd.factorize(steps, sort=True), pd.factorize(names)  # phases in the order in which they ran
    wide = np.full((len(rows[1]), len(columns[1])), np.nan)
    wide[rows[0], columns[0]] = 0.0
    np.add.at(wide, (rows[0], columns[0]), durations_ns / _NS_PER_MS)
    return pd.DataFrame(wide, index=pd.Index(rows[1], name="step"), columns=pd.Index(columns[1]))


def _medians(wide: pd.DataFrame) -> dict[str, float]:
    if wide.empty:
        return {}
    return {str(name): float(median) for name, median in wide.median().items()}


def _phases_for_identity(phases: PhaseRounds) -> tuple[str | None, pd.DataFrame]:
    for source, wide in (("plain", phases.plain), ("instrumented", phases.instrumented)):
        if not wide.empty and not wide.drop(columns=_GAP, errors="ignore").empty:
            return source, wide
    return None, pd.DataFrame()


def _parts_ms(wide: pd.DataFrame, table: pd.DataFrame) -> dict[str, float]:
    """Mean ms of each phase and of the gap, weighted by the requests in the round."""
    if wide.empty:
        return {}
    weights = table["num_decoding"].reindex(wide.index).fillna(1).to_numpy()
    work = wide.drop(columns=_GAP, errors="ignore")
    worked = work.notna().to_numpy().any(axis=1)
    parts = {str(name): _weighted(work[name].fillna(0.0).to_numpy()[worked], weights[worked]) for name in work}
    if _GAP in wide:
        gaps_ms = wide[_GAP].to_numpy()
    else:
        is_decode = table["kind"].to_numpy(dtype=object) == "decode"
        gaps_ms, weights = (table[name].to_numpy()[is_decode] for name in ("gap_ns", "num_decoding"))
        gaps_ms = gaps_ms / _NS_PER_MS
    if (known := ~np.isnan(gaps_ms)).any():
        parts[_GAP] = _weighted(gaps_ms[known], weights[known])
    return parts


def _weighted(values: np.ndarray, weights: np.ndarray) -> float:
    return float((values * weights).sum() / weights.sum())


def _mixed_request_ms(requests: pd.DataFrame, table: pd.DataFrame) -> float:
    """Time that decoding requests spent in mixed steps or were stalled by them, summed over requests."""
    alive = requests["num_output_tokens"].to_numpy() >= 1
    first_ns, last_ns = (np.sort(requests[name].to_numpy()[alive]) for name in ("t_first_ns", "t_last_ns"))
    is_mixed = table["kind"].to_numpy(dtype=object) == "mixed"
    starts_ns, ends_ns, lasted_ns = (
        table[name].to_numpy()[is_mixed] for name in ("t_start_ns", "t_host_ns", "host_ns")
    )
    # A step that was launched before the host had read the last one is charged from then on.
    begun = first_ns.searchsorted(np.fmax(starts_ns, ends_ns - lasted_ns), side="right")
    ended = last_ns.searchsorted(ends_ns, side="left")
    return float(np.nansum(lasted_ns * (begun - ended).clip(min=0)) / _NS_PER_MS)


def _shares(counts: np.ndarray) -> dict[str, float]:
    """By number; empty if they are not whole in every round."""
    if not (counts % 1 == 0).all():
        return {}
    numbers, rounds = np.unique(counts, return_counts=True)
    return {str(int(number)): float(share) for number, share in zip(numbers, rounds / len(counts), strict=True)}


def _known_mean(values: np.ndarray) -> float | None:
    """None if there are none, or if the engine does not report them."""
    return float(values.mean()) if len(values) and not np.isnan(values).any() else None


def _mean_ms(durations_ns: np.ndarray) -> float | None:
    known = durations_ns[~np.isnan(durations_ns)]
    return float(known.mean() / _NS_PER_MS) if len(known) else None
