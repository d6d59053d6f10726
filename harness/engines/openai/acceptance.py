"""Rounds of a request as reported by its server, under our definition of acceptance.

The counts of servers differ from ours in two ways. vLLM and SGLang count drafts that were accepted beyond the end of an
answer, so the last round keeps fewer tokens than accepted + 1: it is `truncated`, as in our own engine. And vLLM
reports only rounds that had drafts; the others are inferred from the pieces of the stream, or from the tokens that are
missing in the sum.

SGLang's average since the start of the server (`avg_spec_accept_length`) does not describe a run and is never read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

from specbench.harness.store.rows import StepRow

from .answers import Answer
from .reports import SpecDecoding, SpecTokensDetails

MAX_ROUNDS = 1 << 20
"""Of one answer: each becomes a row."""


@dataclass(frozen=True, slots=True)
class Round:
    """`num_proposed` drafts of which `num_accepted`, before truncation; `num_emitted` tokens kept."""

    num_proposed: int
    num_accepted: int
    num_emitted: int


@dataclass(frozen=True, slots=True)
class Drafted:
    """(drafts, accepted drafts) of each round that had drafts; a histogram does not contain their order."""

    rounds: Sequence[tuple[int, int]]
    has_order: bool


def step_rows(request_id: int, answer: Answer, draft_depth: int | None = None) -> list[StepRow]:
    """The rounds of an answer, with the times at which the client received them if each is one piece of the stream;
    otherwise separate pieces (with times) and rounds (with acceptance). Empty if the server reports nothing.

    draft_depth: the depth of a tree; None: every round is a chain.
    """
    counts, rounds = answer.tokens_per_piece or [], rounds_of(answer) or []
    times = [piece.t_ns for piece in answer.pieces]
    if rounds and counts == [1, *(one.num_emitted for one in rounds)]:
        seen = enumerate(zip(times, counts, [Round(0, 0, 1), *rounds], strict=True))
        return [_row(number, request_id, t_ns, count, one, draft_depth) for number, (t_ns, count, one) in seen]
    pieces = [_row(n, request_id, times[n], count) for n, count in enumerate(counts)]
    return pieces + [_row(n, request_id, None, one.num_emitted, one, draft_depth) for n, one in enumerate(rounds, 1)]


def rounds_of(answer: Answer) -> list[Round] | None:
    """Rounds after the first token; None if the server does not report each of them."""
    report = answer.speculation
    # Not against the tokens: in files they may have been counted again, in the text, and be fewer than the rounds.
    if report is None or answer.num_output_tokens is None or report.contradiction(num_tokens=None):
        return None
    drafted = _drafted(report)
    if drafted is None:
        return None
    counts = answer.tokens_per_piece
    if counts and counts[0] == 1:
        exact = (_in_order if drafted.has_order else _out_of_order)(drafted.rounds, counts[1:])
        if exact is not None:
            return exact
    num_left = answer.num_output_tokens - 1
    rounds = []
    for proposed, accepted in drafted.rounds:
        emitted = max(0, min(accepted + 1, num_left))
        num_left -= emitted
        rounds.append(Round(proposed, accepted, emitted))
    return rounds + [Round(0, 0, 1)] * num_left


@singledispatch
def _drafted(report: object) -> Drafted | None:
    """None for a report without single rounds: llama.cpp's sums."""
    return None


@_drafted.register
def _(report: SpecDecoding) -> Drafted | None:
    if report.per_step_drafted is not None and report.per_step_accepted is not None:
        return Drafted(list(zip(report.per_step_drafted, report.per_step_accepted, strict=True)), has_order=True)
    return _of_histogram(report.acceptance_histogram, report.num_spec_steps, report.num_draft_tokens)


@_drafted.register
def _(report: SpecTokensDetails) -> Drafted | None:
    return _of_histogram(report.spec_correct_drafts_histogram, report.spec_verify_ct, report.spec_num_proposed_drafts)


def _of_histogram(histogram: Sequence[int], num_rounds: int, num_drafts: int) -> Drafted | None:
    """Only if every round had the same number of drafts; otherwise the number in each is unknown."""
    if num_rounds > MAX_ROUNDS:
        return None
    longest = max((accepted for accepted, times in enumerate(histogram) if times), default=0)
    if not num_rounds or sum(histogram) != num_rounds or num_drafts % num_rounds or longest > num_drafts // num_rounds:
        return None
    # The longest last: tokens cut from the end of the answer are cut from a round that is long enough.
    each = [(num_drafts // num_rounds, accepted) for accepted, times in enumerate(histogram) for _ in range(times)]
    return Drafted(each, has_order=False)


def _in_order(drafted: Sequence[tuple[int, int]], sizes: Sequence[int]) -> list[Round] | None:
    """Each piece of the stream as one round; None where the two do not fit, because pieces were merged on the way."""
    rounds: list[Round] = []
    left = list(drafted[::-1])
    for number, size in enumerate(sizes, 1):
        proposed, accepted = left[-1] if left else (0, 0)
        is_cut = number == len(sizes) and size <= accepted
        if left and (size == accepted + 1 or is_cut):
            left.pop()
        elif size == 1:
            proposed, accepted = 0, 0
        else:
            return None
        rounds.append(Round(proposed, accepted, size))
    return None if left else rounds


def _out_of_order(drafted: Sequence[tuple[int, int]], sizes: Sequence[int]) -> list[Round] | None:
    """The same where only the number of rounds of each kind is known."""
    left = Counter(drafted)
    proposed = drafted[0][0]
    found: list[tuple[int, int]] = []
    for size in sizes[:-1]:
        one = (proposed, size - 1)
        found.append(one if left[one] > 0 else (0, 0))
        left[one] -= left[one] > 0
    found += left.elements()  # one at most, or the two do not fit
    return _in_order([one for one in found if one != (0, 0)], sizes)


def _row(
    number: int,
    request_id: int,
    t_ns: int | None,
    num_emitted: int,
    one: Round | None = None,
    draft_depth: int | None = None,
) -> StepRow:
    """A round, a piece of the stream, or both. The first token belongs to the prefill."""
    proposed = one.num_proposed if one else None
    depth = proposed if draft_depth is None or proposed is None else min(draft_depth, proposed)
    return StepRow(
        step=number,
        request_id=request_id,
        kind="decode",
        is_prefill=number == 0,
        t_start_ns=None,
        t_host_ns=t_ns,
        t_device_ns=None,
        batch_size=None,
        num_rows=None,
        num_padded_rows=None,
        num_draft_rows=None,
        num_proposed=proposed,
        draft_depth=depth,
        num_accepted=one.num_accepted if one else None,
        num_emitted=num_emitted,
        truncated=one.num_emitted < one.num_accepted + 1 if one else None,
        graph=None,
        num_syncs=None,
        syncs=None,
    )
