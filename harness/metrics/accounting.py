"""Where the time of a block went: rounds, phases, host synchronisations, and whether the parts add up to TPOT.

A decode round is a step of kind `decode`. Decode figures come from decode rounds; mixed steps are counted separately.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from specbench.harness.stats.spread import percentiles, under

RESIDUAL_LIMIT = 0.03
"""A residual beyond this fraction of TPOT means that the phases do not explain the speed."""

_NS_PER_MS = 1e6
_GAP = "gap"


@dataclass(frozen=True, slots=True)
class PhaseRounds:
    """ms by decode round (rows) and phase (columns), for phases timed without and with additional synchronisations."""

    plain: pd.DataFrame
    instrumented: pd.DataFrame


def phase_rounds(phases: pd.DataFrame, table: pd.DataFrame) -> PhaseRounds:
    """The phase times of one block, from its phases and its `step_table`."""
    return PhaseRounds(_by_round(phases, table, instrumented=False), _by_round(phases, table, instrumented=True))


def step_table(steps: pd.DataFrame) -> pd.DataFrame:
    """One row per step, by step number: the shared columns, `emitted` tokens of the step, and three durations.

    round_ns: from the completion of the previous step (for the first: from the launch) to this one's, on the device; it
    includes the gap before the step, and the rounds of a block add up. host_ns: the same as seen by the host. gap_ns:
    from the moment the host had the previous result to this launch, 0 if launches overlap, nan for the first. If the
    engine does not report device times, both are as seen by the host; if it does not report steps, there are none.
    """
    steps = steps[steps["t_start_ns"].notna()]
    shared = ["kind", "t_start_ns", "t_host_ns", "t_device_ns", "batch_size"]
    shared += ["num_rows", "num_padded_rows", "num_draft_rows"]
    by_step = steps.assign(num_decoding=~steps["is_prefill"].astype(bool)).groupby("step", sort=True)
    table = by_step[[*shared, "graph", "num_syncs"]].first()
    table["emitted"] = by_step["num_emitted"].sum()
    table["num_decoding"] = by_step["num_decoding"].sum()
    done_ns = {"round_ns": table["t_device_ns"].fillna(table["t_host_ns"]), "host_ns": table["t_host_ns"]}
    for name, ended_ns in done_ns.items():
        table[name] = (ended_ns - ended_ns.shift().fillna(table["t_start_ns"])).clip(lower=0)
    table["gap_ns"] = (table["t_start_ns"] - table["t_host_ns"].shift()).clip(lower=0)
    return table


def round_metrics(table: pd.DataFrame) -> dict[str, float | None]:
    """Figures of the decode rounds of a `step_table`; None without any, numbers of steps without any step.

    decode_tps: tokens of the decode rounds / time in them, gaps in front included. round_ms: their duration.
    syncs_per_round: blocking host synchronisations a round. rows_per_round, draft_rows_per_round: rows of the target's
    forward, padding included, and of the first drafter pass. row_padding: share of the target's rows that is padding.
    drafts_per_round: rows of a request less one, mean over rounds; rounds_by_drafts: share of the rounds with each.
    """
    rounds = table[table["kind"] == "decode"]
    total_s = rounds["round_ns"].sum() / 1e9
    padded = rounds["num_padded_rows"].sum()
    drafts = rounds["num_rows"].astype(float) / rounds["batch_size"].astype(float) - 1
    return {
        "decode_tps": rounds["emitted"].sum() / total_s if total_s > 0 else None,
        "round_ms.mean": _mean_ms(rounds["round_ns"]),
        **under("round_ms", percentiles(rounds["round_ns"] / _NS_PER_MS, 50, 99)),
        "gap_ms.mean": _mean_ms(rounds["gap_ns"]),
        **under("gap_ms", percentiles(rounds["gap_ns"].dropna() / _NS_PER_MS, 50)),
        "syncs_per_round": _known_mean(rounds["num_syncs"]),
        "mean_batch_size": _known_mean(rounds["batch_size"]),
        "rows_per_round": _known_mean(rounds["num_padded_rows"]),
        "draft_rows_per_round": _known_mean(rounds["num_draft_rows"]),
        "row_padding": 1 - rounds["num_rows"].sum() / padded if padded else None,
        "num_decode_rounds": len(rounds) if len(table) else None,
        "num_mixed_steps": int((table["kind"] == "mixed").sum()) if len(table) else None,
        "drafts_per_round": _known_mean(drafts),
        **under("rounds_by_drafts", _shares(drafts)),
        **under("rounds_by_graph", rounds["graph"].value_counts().to_dict()),
    }


def phase_metrics(rounds: PhaseRounds) -> dict[str, float | None]:
    """Median ms that a decode round spends in each phase, `plain` and `instrumented` separately."""
    return {
        **under("plain", _medians(rounds.plain)),
        **under("instrumented", _medians(rounds.instrumented)),
    }


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
    rows = steps[~steps["is_prefill"].astype(bool)]
    num_tokens = rows["num_emitted"].sum()
    num_forwards = int((rows["kind"] == "decode").sum())
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
    chosen = phases[phases["instrumented"].astype(bool) == instrumented]
    if chosen.empty:
        return pd.DataFrame()
    kinds = chosen["step"].map(table["kind"])
    chosen = chosen[(kinds == "decode") | (kinds.isna() & instrumented)]
    wide = chosen.groupby(["step", "phase"])["duration_ns"].sum().unstack() / _NS_PER_MS
    return wide[list(chosen["phase"].unique())]  # in the order in which they ran, not by name


def _medians(wide: pd.DataFrame) -> dict[str, float]:
    return {str(name): float(wide[name].median()) for name in wide}


def _phases_for_identity(phases: PhaseRounds) -> tuple[str | None, pd.DataFrame]:
    for source, wide in (("plain", phases.plain), ("instrumented", phases.instrumented)):
        if not wide.drop(columns=_GAP, errors="ignore").empty:
            return source, wide
    return None, pd.DataFrame()


def _parts_ms(wide: pd.DataFrame, table: pd.DataFrame) -> dict[str, float]:
    """Mean ms of each phase and of the gap, weighted by the requests in the round."""
    if wide.empty:
        return {}
    weights = table["num_decoding"].reindex(wide.index).fillna(1)
    work = wide.drop(columns=_GAP, errors="ignore").dropna(how="all").fillna(0.0)
    parts = {str(name): _weighted(work[name], weights) for name in work}
    rounds = table[table["kind"] == "decode"]
    gaps = wide[_GAP].dropna() if _GAP in wide else rounds["gap_ns"].dropna() / _NS_PER_MS
    if len(gaps):
        parts[_GAP] = _weighted(gaps, table["num_decoding"].reindex(gaps.index).fillna(1))
    return parts


def _weighted(values: pd.Series, weights: pd.Series) -> float:
    weights = weights.reindex(values.index)
    return float((values * weights).sum() / weights.sum())


def _mixed_request_ms(requests: pd.DataFrame, table: pd.DataFrame) -> float:
    """Time that decoding requests spent in mixed steps or were stalled by them, summed over requests."""
    first_ns = requests.loc[requests["num_output_tokens"] >= 1, "t_first_ns"].sort_values()
    last_ns = requests.loc[requests["num_output_tokens"] >= 1, "t_last_ns"].sort_values()
    mixed = table[table["kind"] == "mixed"]
    begun = first_ns.searchsorted(mixed["t_start_ns"], side="right")
    ended = last_ns.searchsorted(mixed["t_host_ns"], side="left")
    num_waiting = (begun - ended).clip(min=0)
    return float((mixed["host_ns"] * num_waiting).sum() / _NS_PER_MS)


def _shares(counts: pd.Series) -> dict[str, float]:
    """By number; empty if they are not whole in every round."""
    if not (counts % 1 == 0).all():
        return {}
    return {str(int(count)): float(share) for count, share in counts.value_counts(normalize=True).sort_index().items()}


def _known_mean(values: pd.Series) -> float | None:
    """None if there are none, or if the engine does not report them."""
    return float(values.mean()) if len(values) and values.notna().all() else None


def _mean_ms(durations_ns: pd.Series) -> float | None:
    return float(durations_ns.mean() / _NS_PER_MS) if durations_ns.notna().any() else None
