"""Acceptance from sums over a whole run, for imported files that do not list rounds.

1 + accepted / verifications with drafts is our acceptance length, whichever engine counts. Sums by position are our
rates if every verification had the same number of drafts; otherwise it is unknown how many reached a position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from specbench.harness.store.results import Acceptance, VllmAcceptance

ROUNDS, DRAFT_TOKENS = "file.num_drafts", "file.num_draft_tokens"
ACCEPTED, AT_POSITION = "file.num_accepted_tokens", "file.num_accepted_tokens_per_pos/"


def with_counted(acceptance: Acceptance, counters: Mapping[str, float]) -> Acceptance:
    """`acceptance` unchanged if rounds are known, or if nothing was counted."""
    num_rounds = int(counters.get(ROUNDS, 0))
    if acceptance.num_verifications or not num_rounds:
        return acceptance
    num_tokens, num_accepted = int(counters[DRAFT_TOKENS]), int(counters[ACCEPTED])
    at = [int(counters[name]) for n in range(len(counters)) if (name := f"{AT_POSITION}{n}") in counters]
    is_uniform = bool(at) and num_tokens == num_rounds * len(at) and sum(at) == num_accepted
    rate = num_accepted / num_tokens if num_tokens else None
    found = replace(
        acceptance,
        acceptance_length=1 + num_accepted / num_rounds,
        draft_acceptance_rate=rate,
        num_verifications=num_rounds,
        peers=replace(
            acceptance.peers,
            vllm=VllmAcceptance(
                mean_acceptance_length=1 + num_accepted / num_rounds,
                draft_acceptance_rate=rate,
                per_position=tuple(count / num_rounds for count in at),
            ),
        ),
    )
    return _by_position(found, num_rounds, at) if is_uniform else found


def _by_position(acceptance: Acceptance, num_rounds: int, at: Sequence[int]) -> Acceptance:
    reached = [num_rounds, *at]
    return replace(
        acceptance,
        accepted_depth_rate=acceptance.draft_acceptance_rate,
        marginal=tuple(count / num_rounds for count in at),
        conditional=tuple(b / a if a else None for a, b in zip(reached, at, strict=False)),
        accepted_histogram=tuple(a - b for a, b in zip(reached, [*at, 0], strict=True)),
    )
