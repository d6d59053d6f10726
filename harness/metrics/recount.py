"""An engine's own speculation counters next to a count of its rounds, and why their figures differ from ours.

vLLM counts every draft that its sampler accepted, including drafts after a stop token or the limit that are not output.
It divides the drafts accepted at a position by all rounds with drafts, including rounds with fewer drafts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

_DRAFTS = "engine.spec_decode_num_drafts"
_DRAFT_TOKENS = "engine.spec_decode_num_draft_tokens"
_ACCEPTED = "engine.spec_decode_num_accepted_tokens"
_AT_POSITION = "engine.spec_decode_num_accepted_tokens_per_pos/"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recount:
    """The recount of one block. `drafted`, `accepted`: by position, from rounds; `counters`: the engine's own.
    `num_first`: tokens produced with a prompt; `num_plain`: with a forward without drafts; `num_lost`: accepted or
    bonus tokens that were never kept."""

    num_drafts: int
    drafted: tuple[int, ...]
    accepted: tuple[int, ...]
    num_first: int
    num_plain: int
    num_lost: int
    num_output_tokens: int
    counters: Mapping[str, float]

    @property
    def is_balanced(self) -> bool:
        """Whether every output token is accounted for."""
        made = self.num_first + self.num_plain + self.num_drafts + sum(self.accepted)
        return made - self.num_lost == self.num_output_tokens

    @property
    def differences(self) -> tuple[str, ...]:
        """Counters that disagree with the rounds."""
        ours = {_DRAFTS: self.num_drafts, _DRAFT_TOKENS: sum(self.drafted), _ACCEPTED: sum(self.accepted)}
        ours |= {f"{_AT_POSITION}{n}": count for n, count in enumerate(self.accepted)}
        reported = {name: value for name, value in self.counters.items() if name in ours}
        return tuple(
            f"{name}: {reported[name]:g}, by its rounds {ours[name]}"
            for name in reported
            if reported[name] != ours[name]
        )

    def lines(self) -> Iterator[str]:
        """For people."""
        total, lost = sum(self.accepted), self.num_lost
        yield f"drafts {self.num_drafts}, draft tokens {sum(self.drafted)}, accepted {total}"
        yield "engine's counters: " + ("; ".join(self.differences) or "the same, by position too")
        yield (
            f"tokens kept {self.num_output_tokens} = {self.num_first} with prompts + {self.num_plain} without draft + "
            f"{self.num_drafts} bonus + {total} accepted - {lost} past a stop or the limit"
            + ("" if self.is_balanced else ": DOES NOT ADD UP")
        )
        if self.num_drafts:
            kept = (self.num_drafts + total - lost) / self.num_drafts
            yield f"acceptance length {1 + total / self.num_drafts:.4f} as the engine counts, {kept:.4f} of tokens kept"
        for n, (drafted, accepted) in enumerate(zip(self.drafted, self.accepted, strict=True), 1):
            if drafted != self.num_drafts:
                theirs = f"the engine divides by all: {accepted / self.num_drafts:.4f}"
                yield f"position {n}: {accepted}/{drafted} = {accepted / drafted:.4f}; {theirs}"


def recount(requests: pd.DataFrame, steps: pd.DataFrame, counters: Mapping[str, float]) -> Recount:
    """`requests`, `steps`: rows of the raw tables, one block of chains."""
    prefill = steps["is_prefill"].astype(bool)
    rounds = steps[~prefill]
    verified, plain = rounds[rounds["num_proposed"] >= 1], rounds[rounds["num_proposed"] == 0]
    positions = range(1, int(verified["num_proposed"].max()) + 1) if len(verified) else range(0)
    lost = (verified["num_accepted"] + 1 - verified["num_emitted"]).sum()
    return Recount(
        num_drafts=len(verified),
        drafted=tuple(int((verified["num_proposed"] >= n).sum()) for n in positions),
        accepted=tuple(int((verified["num_accepted"] >= n).sum()) for n in positions),
        num_first=int(steps[prefill]["num_emitted"].sum()),
        num_plain=int(plain["num_emitted"].sum()),
        num_lost=int(lost),
        num_output_tokens=int(requests["num_output_tokens"].sum()),
        counters=dict(counters),
    )
