"""Whether two engines accept the same drafts: the check that detects faults of a drafter, which no output shows.

Rounds are keyed by the output tokens before them, and compared only as far as both engines have the same output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scipy import stats

from specbench.harness.metrics.same_rounds import common_length
from specbench.harness.store.rows import StepRow

MAX_FLIPPED = 0.05  # of the rounds, outside fp32: a drafter's near-ties flip too, and its logits are not available
_ONE_SIDED = 1e-3
_FEW_ROUNDS = 3  # a flip or two at the end of short texts


class Round(NamedTuple):
    """One verification: output tokens before it, drafts offered, drafts accepted, tokens emitted."""

    position: int
    proposed: int
    accepted: int
    emitted: int


Rounds = Mapping[int, Sequence[Round]]


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptanceComparison:
    """Rounds that both engines began after the same text, and those in which they accepted differently."""

    num_rounds: int
    num_higher: int  # the arm accepted more than the other
    num_lower: int
    num_unmatched: int  # rounds that only one of them began, after a flip and until both are in step again
    num_more: int = 0  # rounds that the arm needed for the same text beyond the other's; negative: fewer

    @property
    def num_flipped(self) -> int:
        return self.num_higher + self.num_lower

    def problem(self, is_exact: bool) -> str:
        """Why these are not the same drafts; empty if they are. `is_exact`: fp32, no round may differ.

        Otherwise, rounds that both began are judged one by one. One flip in a repetitive text keeps the two out of step
        to its end; rounds out of step are judged only by their number: the same drafts need the same number of rounds
        for the same text. If no round can be judged, nothing is proved, which is not a pass.
        """
        if is_exact:
            different = self.num_flipped + self.num_unmatched
            total = self.num_rounds + self.num_unmatched
            return f"{different} of {total} rounds accept different drafts" if different else ""
        text = f"{self.num_flipped} of {self.num_rounds} rounds accept different drafts"
        if self.num_unmatched and not self.num_rounds:
            return f"all {self.num_unmatched} rounds begin after different texts"
        if self.num_flipped > MAX_FLIPPED * self.num_rounds:
            return text
        others = self.num_rounds + (self.num_unmatched - self.num_more) // 2
        if abs(self.num_more) > MAX_FLIPPED * others + _FEW_ROUNDS:
            return f"{others + self.num_more} rounds instead of {others} for the same text"
        if self.num_flipped and stats.binomtest(self.num_lower, self.num_flipped).pvalue < _ONE_SIDED:
            return f"{text}, nearly all on one side ({self.num_higher} more, {self.num_lower} fewer)"
        return ""


def rounds_of(rows: Iterable[StepRow]) -> dict[int, list[Round]]:
    """Every request's verifications, from the rows of a step log in their order."""
    found: dict[int, list[Round]] = {}
    emitted: dict[int, int] = {}
    for row in rows:
        before = emitted.get(row.request_id, 0)
        if not row.is_prefill and row.num_proposed is not None and row.num_accepted is not None:
            found.setdefault(row.request_id, []).append(
                Round(before, row.num_proposed, row.num_accepted, row.num_emitted)
            )
        emitted[row.request_id] = before + row.num_emitted
    return found


def acceptance_length(rounds: Rounds) -> float | None:
    """Tokens per verification, including the bonus token, all requests pooled; None without drafts."""
    all_rounds = [r for request in rounds.values() for r in request if r.proposed]
    return 1 + sum(r.accepted for r in all_rounds) / len(all_rounds) if all_rounds else None


def compare_rounds(
    arm: Rounds, other: Rounds, outputs: Mapping[int, Sequence[int]], other_outputs: Mapping[int, Sequence[int]]
) -> AcceptanceComparison:
    """Request by request, up to the first token that differs."""
    counts = {"same": 0, "higher": 0, "lower": 0, "unmatched": 0, "more": 0}
    for number, output in outputs.items():
        shared = common_length(output, other_outputs[number])
        mine, theirs = (_whole(rounds.get(number, ()), shared) for rounds in (arm, other))
        counts["more"] += len(mine) - len(theirs)
        for position in sorted(mine.keys() | theirs.keys()):
            if position not in mine or position not in theirs:
                counts["unmatched"] += 1
            else:
                change = mine[position].accepted - theirs[position].accepted
                counts["higher" if change > 0 else "lower" if change < 0 else "same"] += 1
    return AcceptanceComparison(
        num_rounds=counts["same"] + counts["higher"] + counts["lower"],
        num_higher=counts["higher"],
        num_lower=counts["lower"],
        num_unmatched=counts["unmatched"],
        num_more=counts["more"],
    )


def as_far_as_both(arm: Rounds, other: Rounds) -> tuple[Rounds, Rounds]:
    """For arms whose number of drafts changes between rounds: the rounds that both began, limited to the number of
    drafts that both had. The number of drafts depends on when the host reads, and a difference is not a fault of the
    drafter."""
    mine, theirs = {}, {}
    for number in arm.keys() & other.keys():
        at = {r.position: r for r in other[number]}
        pairs = [(r, at[r.position]) for r in arm[number] if r.position in at]
        mine[number] = [_with_drafts(a, min(a.proposed, b.proposed)) for a, b in pairs]
        theirs[number] = [_with_drafts(b, min(a.proposed, b.proposed)) for a, b in pairs]
    return mine, theirs


def _with_drafts(r: Round, most: int) -> Round:
    accepted = min(r.accepted, most)
    return Round(r.position, most, accepted, min(r.emitted, accepted + 1))


def _whole(rounds: Sequence[Round], shared: int) -> dict[int, Round]:
    """Rounds entirely within the first `shared` tokens, by position."""
    return {r.position: r for r in rounds if r.position + r.emitted <= shared}
