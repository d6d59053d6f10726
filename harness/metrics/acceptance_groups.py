"""Acceptance by groups of forwards: by context length, and by the temperature of a grid."""

from __future__ import annotations

import numpy as np
import pandas as pd

from specbench.harness.store.results import AcceptanceGroup
from specbench.workloads.temperatures import temperature_of

CONTEXT, TEMPERATURE = "context", "temperature"
_FIRST_BIN = 512  # tokens; each further bin is as wide as all before it


def acceptance_groups(requests: pd.DataFrame, steps: pd.DataFrame) -> tuple[AcceptanceGroup, ...]:
    """Groups with at least one decode forward, contexts in rising order; a kind with a single group is left out.

    Context of a forward: the request's tokens before it, prompt and output. Bins: below 512 tokens, then up to 1,024,
    2,048, ... Temperature: from the prompt's id, if the run has a grid of temperatures.
    """
    keys = [name for name in ("repeat", "request_id") if name in steps and name in requests]
    if steps.empty or requests.empty or "prompt_id" not in requests or _is_one_group(requests):
        return ()
    kept = ["step", "is_prefill", "draft_depth", "num_accepted", "num_emitted"]
    steps = steps[[*keys, *kept]].sort_values("step")
    before = steps.groupby(keys)["num_emitted"].cumsum() - steps["num_emitted"]
    about = requests[[*keys, "prompt_id", "num_prompt_tokens"]].drop_duplicates(keys)
    rows = steps.assign(before=before).merge(about, on=keys)
    rows = rows[~rows["is_prefill"].astype(bool) & rows["num_prompt_tokens"].notna()]
    context = (rows["num_prompt_tokens"] + rows["before"]).to_numpy(dtype=float)
    bins = np.ceil(np.log2(np.maximum(np.floor(context / _FIRST_BIN) + 1, 1))).astype(int)
    by_bin = [(CONTEXT, _bin_name(n), rows[bins == n]) for n in np.unique(bins)]
    temperatures = rows["prompt_id"].map(temperature_of)
    by_heat = [(TEMPERATURE, f"{t:g}", rows[temperatures == t]) for t in np.unique(temperatures.dropna())]
    return tuple(_group(*each) for kind in (by_bin, by_heat) if len(kind) > 1 for each in kind)


def _is_one_group(requests: pd.DataFrame) -> bool:
    """Of most blocks that is seen without looking at their steps."""
    longest = (requests["num_prompt_tokens"] + requests["num_output_tokens"]).max()
    return bool(longest < _FIRST_BIN) and requests["prompt_id"].map(temperature_of).dropna().empty


def _bin_name(number: int) -> str:
    """The range of tokens, both ends included."""
    first = _FIRST_BIN << (number - 1) if number else 0
    return f"{first}-{(_FIRST_BIN << number) - 1}"


def _group(kind: str, name: str, rows: pd.DataFrame) -> AcceptanceGroup:
    verified = rows[rows["draft_depth"] >= 1]
    return AcceptanceGroup(
        kind=kind,
        name=name,
        num_forwards=len(rows),
        num_verifications=len(verified),
        acceptance_length=1 + float(verified["num_accepted"].mean()) if len(verified) else None,
        tokens_per_forward=float(rows["num_emitted"].mean()),
    )
