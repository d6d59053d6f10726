"""Which requests of two results are the same request, and how this is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .result import Request, Result


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairing:
    """`prompt_ids`: a name for the prompt of each request; the same as the baseline's for the same request. `how`: a
    note for the reader of the row."""

    prompt_ids: Sequence[str]
    how: str


def own_ids(label: str, requests: Sequence[Request]) -> list[str]:
    """Prompt ids of a result that is not compared with another."""
    return [one.prompt or f"{label}: {n}" for n, one in enumerate(requests)]


def pair(label: str, result: Result, baseline: Result, baseline_ids: Sequence[str]) -> Pairing:
    """Pairs requests by the prompts in the files; if a file does not have them, by position, if both have the same
    number of requests with prompts of the same lengths."""
    mine, theirs = result.requests, baseline.requests
    if not mine or not theirs:
        return Pairing(prompt_ids=own_ids(label, mine), how="")
    prompts = {one.prompt: one.num_prompt_tokens for one in theirs if one.prompt and one.is_served}
    same = [one for one in mine if one.prompt in prompts and one.is_served]
    if same and all(prompts[one.prompt] == one.num_prompt_tokens for one in same):
        return Pairing(prompt_ids=own_ids(label, mine), how=f"{len(same)} of {len(mine)} requests paired by prompt")
    reason = _apart(mine, theirs)
    if prompts and not same and all(one.prompt for one in mine if one.is_served):
        reason = "no prompt of one is a prompt of the other"
    if reason:
        return unpaired(label, mine, f"requests not paired: {reason}")
    how = (
        f"{len(mine)} requests paired by position: prompts of the same lengths in the same order, not known to be equal"
    )
    return Pairing(prompt_ids=list(baseline_ids), how=how)


def unpaired(label: str, requests: Sequence[Request], how: str) -> Pairing:
    """Unique prompt ids, so that no requests are paired by chance."""
    return Pairing(prompt_ids=[f"{label}: {n}" for n in range(len(requests))], how=how)


def _apart(mine: Sequence[Request], theirs: Sequence[Request]) -> str:
    if len(mine) != len(theirs):
        return f"{len(mine)} and {len(theirs)}"
    # For a failed request, some tools only know the length before the chat template.
    pairs = [(a.num_prompt_tokens, b.num_prompt_tokens) for a, b in zip(mine, theirs, strict=True)]
    served = [a.is_served and b.is_served for a, b in zip(mine, theirs, strict=True)]
    others = [n for n, (a, b) in enumerate(pairs) if a != b and served[n]]
    if others:
        a, b = pairs[others[0]]
        first = f"request {others[0] + 1} with {a} and {b} tokens"
        return f"{len(others)} prompts have different lengths, the first is {first}"
    return ""
