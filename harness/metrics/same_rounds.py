"""Whether two arms took the same rounds: the same tokens, and as many drafts accepted at each position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from specbench.harness.metrics.same_requests import pair_requests


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The first difference between a pair of requests, or one of their rounds. `at`: output tokens before it. `a`, `b`:
    the tokens that follow (`what` is token; None: the output ends), or how many drafts were accepted (accepted)."""

    repeat: int
    prompt_id: str
    at: int
    what: str
    a: int | None
    b: int | None
    before: tuple[int, ...] = ()  # the answer's tokens so far

    def __str__(self) -> str:
        return f"{self.prompt_id}, behind {self.at} tokens: {self.what} {self.a} and {self.b}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SameRounds:
    """`num_rounds`: rounds of both at the same position, of which `num_equal` accepted the same number. Nothing is
    compared after the first differing token. `num_apart`: rounds of a at positions where b begins none."""

    num_requests: int
    num_same_answers: int
    num_rounds: int
    num_equal: int
    num_apart: int
    differences: tuple[Difference, ...]


def same_rounds(
    requests_a: pd.DataFrame, steps_a: pd.DataFrame, requests_b: pd.DataFrame, steps_b: pd.DataFrame
) -> SameRounds:
    """`requests_*`, `steps_*`: rows of the raw tables, one arm each, of engines that report tokens and acceptance."""
    pairs = pair_requests(requests_a, requests_b, ["request_id", "output_token_ids"])
    rounds_a, rounds_b = _rounds(steps_a), _rounds(steps_b)
    differences: list[Difference] = []
    num_same = num_rounds = num_equal = num_apart = 0
    for pair in pairs.to_dict("records"):
        a, b = ([int(token) for token in pair[f"output_token_ids_{side}"]] for side in "ab")
        end = common_length(a, b)
        of_a, of_b = (
            _ended_by(rounds.get((int(pair["repeat"]), int(pair[f"request_id_{side}"])), {}), end)
            for rounds, side in ((rounds_a, "a"), (rounds_b, "b"))
        )
        both = sorted(of_a.keys() & of_b.keys())
        found: list[_Parting] = [(at, "accepted", of_a[at], of_b[at]) for at in both if of_a[at] != of_b[at]]
        num_same += a == b
        num_rounds += len(both)
        num_equal += len(both) - len(found)
        num_apart += len(of_a.keys() - of_b.keys())
        if a != b:
            found.append((end, "token", _at(a, end), _at(b, end)))
        pair_of: dict[str, Any] = {"repeat": int(pair["repeat"]), "prompt_id": str(pair["prompt_id"])}
        differences += [
            Difference(**pair_of, at=at, what=what, a=first, b=second, before=tuple(a[:at]))
            for at, what, first, second in found
        ]
    return SameRounds(
        num_requests=len(pairs),
        num_same_answers=num_same,
        num_rounds=num_rounds,
        num_equal=num_equal,
        num_apart=num_apart,
        differences=tuple(differences),
    )


_Round = tuple[int, int]  # accepted, emitted
_Parting = tuple[int, str, "int | None", "int | None"]


def _rounds(steps: pd.DataFrame) -> dict[tuple[int, int], dict[int, _Round]]:
    """By repeat and request: each round by the number of tokens before it."""
    found: dict[tuple[int, int], dict[int, _Round]] = {}
    ordered = steps.sort_values("step")
    for (repeat, request_id), rows in ordered.groupby(["repeat", "request_id"]):
        before, rounds = 0, {}
        for is_prefill, accepted, emitted in zip(
            rows["is_prefill"], rows["num_accepted"], rows["num_emitted"], strict=True
        ):
            if not is_prefill:
                rounds[before] = int(accepted), int(emitted)
            before += int(emitted)
        found[int(repeat), int(request_id)] = rounds
    return found


def _ended_by(rounds: Mapping[int, _Round], end: int) -> dict[int, int]:
    """Accepted drafts of the rounds that ended before the outputs diverged."""
    return {at: accepted for at, (accepted, emitted) in rounds.items() if at + emitted <= end}


def _at(tokens: Sequence[int], place: int) -> int | None:
    return tokens[place] if place < len(tokens) else None


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """The number of tokens before the first difference."""
    pairs = zip(a, b, strict=False)
    return next((n for n, (one, other) in enumerate(pairs) if one != other), min(len(a), len(b)))
