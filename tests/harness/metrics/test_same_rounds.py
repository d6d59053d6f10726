"""Rounds of two arms side by side, and an engine's counters beside its rounds, on rows made by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from specbench.harness.metrics.recount import recount
from specbench.harness.metrics.same_rounds import same_rounds

Round = tuple[int, int, int]  # proposed, accepted, emitted


def arm(*answers: tuple[list[int], list[Round]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Each answer: its tokens, and its rounds behind the first token."""
    requests, steps = [], []
    for number, (tokens, rounds) in enumerate(answers):
        requests.append(
            {
                "repeat": 0,
                "prompt_id": f"p{number}",
                "request_id": number,
                "output_token_ids": tokens,
                "num_output_tokens": len(tokens),
            }
        )
        for step, (proposed, accepted, emitted) in enumerate([(0, 0, 1), *rounds]):
            row = {"num_proposed": proposed, "num_accepted": accepted, "num_emitted": emitted}
            steps.append({"repeat": 0, "request_id": number, "step": step, "is_prefill": step == 0, **row})
    return pd.DataFrame(requests), pd.DataFrame(steps)


TOKENS = [5, 6, 7, 8, 9, 10]


def test_the_same_rounds():
    one = arm((TOKENS, [(4, 2, 3), (4, 1, 2)]), (TOKENS[:2], [(0, 0, 1)]))
    same = same_rounds(*one, *one)
    assert (same.num_requests, same.num_same_answers, same.num_rounds, same.num_equal) == (2, 2, 3, 3)
    assert same.differences == () and same.num_apart == 0


def test_a_round_that_accepts_otherwise_is_listed_and_those_behind_it_are_found_again():
    one = arm((TOKENS, [(4, 2, 3), (4, 1, 2)]))
    other = arm((TOKENS, [(4, 1, 2), (4, 0, 1), (4, 1, 2)]))
    same = same_rounds(*one, *other)
    assert same.num_same_answers == 1 and (same.num_rounds, same.num_equal, same.num_apart) == (2, 1, 0)
    (found,) = same.differences
    assert str(found) == "p0, behind 1 tokens: accepted 2 and 1" and found.before == (5,)
    assert same_rounds(*other, *one).num_apart == 1


def test_behind_a_token_that_differs_nothing_is_compared():
    one = arm((TOKENS, [(4, 1, 2), (4, 2, 3)]))
    other = arm(([5, 6, 7, 8, 99], [(4, 1, 2), (4, 1, 2)]))
    same = same_rounds(*one, *other)
    assert same.num_same_answers == 0 and (same.num_rounds, same.num_equal) == (1, 1)
    (found,) = same.differences
    assert (found.what, found.at, found.a, found.b, found.before) == ("token", 4, 9, 99, (5, 6, 7, 8))


def test_an_answer_that_ends_earlier_differs():
    one, other = arm((TOKENS, [(4, 4, 5)])), arm((TOKENS[:5], [(4, 3, 4)]))
    (found,) = same_rounds(*one, *other).differences
    assert (found.at, found.a, found.b) == (5, 10, None)


COUNTERS = {
    "engine.spec_decode_num_drafts": 3.0,
    "engine.spec_decode_num_draft_tokens": 10.0,
    "engine.spec_decode_num_accepted_tokens": 7.0,
    "engine.spec_decode_num_accepted_tokens_per_pos/0": 3.0,
    "engine.spec_decode_num_accepted_tokens_per_pos/1": 2.0,
    "engine.spec_decode_num_accepted_tokens_per_pos/2": 1.0,
    "engine.spec_decode_num_accepted_tokens_per_pos/3": 1.0,
    "engine.prefix_cache_hits": 0.0,
}
ROUNDS = [(4, 1, 2), (0, 0, 1), (2, 2, 3), (4, 4, 3)]  # the last runs into the limit: two tokens nobody gets


def test_every_token_is_accounted_for():
    block = arm((list(range(10)), ROUNDS))
    counted = recount(*block, COUNTERS)
    assert counted.is_balanced and counted.differences == ()
    assert (counted.num_first, counted.num_plain, counted.num_lost) == (1, 1, 2)
    assert counted.drafted == (3, 3, 2, 2) and counted.accepted == (3, 2, 1, 1)
    said = "\n".join(counted.lines())
    assert (
        "tokens kept 10 = 1 with prompts + 1 without draft + 3 bonus + 7 accepted - 2 past a stop or the limit" in said
    )
    assert "acceptance length 3.3333 as the engine counts, 2.6667 of tokens kept" in said
    assert "position 3: 1/2 = 0.5000; the engine divides by all: 0.3333" in said and "position 1" not in said


@pytest.mark.parametrize("name", [name for name in COUNTERS if "spec_decode" in name])
def test_a_counter_that_does_not_fit_is_named(name):
    counted = recount(*arm((list(range(10)), ROUNDS)), {**COUNTERS, name: COUNTERS[name] + 1})
    assert counted.differences == (f"{name}: {COUNTERS[name] + 1:g}, by its rounds {COUNTERS[name]:g}",)


def test_a_token_from_nowhere_is_seen():
    counted = recount(*arm((list(range(11)), ROUNDS)), COUNTERS)
    assert not counted.is_balanced and any("DOES NOT ADD UP" in line for line in counted.lines())


def test_without_drafts():
    counted = recount(*arm((TOKENS, [(0, 0, 1)] * 5)), {})
    assert counted.is_balanced and counted.num_drafts == 0 and counted.num_plain == 5
