"""Rounds of a witness beside ours, prompt by prompt, as `results/*-rounds.json` keeps them.

For each prompt, a side records its output tokens and how many drafts each round accepted, before a stop or the limit
cut any. The positions of rounds follow, because the first token comes with the prompt and a round adds one token more
than it accepted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from specbench.harness.metrics.same_rounds import SameRounds, same_rounds

Side = Mapping[str, list[int]]  # tokens, accepted


def read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8"))


def agreement(arm: Mapping[str, Any]) -> SameRounds:
    """Of an arm of a record: ours and the witness', token by token and round by round."""
    ours, theirs = (_tables(arm["prompts"], side) for side in ("specbench", "witness"))
    return same_rounds(*ours, *theirs)


def said(same: SameRounds) -> str:
    return (
        f"{same.num_same_answers} of {same.num_requests} answers the same; {same.num_equal} of {same.num_rounds} "
        "rounds accepted the same number of drafts"
        + (f", {same.num_apart} at other positions" if same.num_apart else "")
    )


def _tables(prompts: Sequence[Mapping[str, Any]], side: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Requests and steps as a run has them."""
    requests, steps = [], []
    for number, prompt in enumerate(prompts):
        tokens, accepted = prompt[side]["tokens"], prompt[side]["accepted"]
        of = dict(repeat=0, request_id=number)
        requests.append(dict(of, prompt_id=prompt["id"], output_token_ids=tokens))
        emitted = [1, *(n + 1 for n in accepted)]
        emitted[-1] -= max(0, sum(emitted) - len(tokens))  # cut by a stop or the limit
        for step, (kept, drafts) in enumerate(zip(emitted, [0, *accepted], strict=True)):
            steps.append(dict(of, step=step, is_prefill=step == 0, num_accepted=drafts, num_emitted=kept))
    return pd.DataFrame(requests), pd.DataFrame(steps)
