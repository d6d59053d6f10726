"""Stop strings: where text and tokens end, whatever the tokens' borders."""

from __future__ import annotations

import pytest

from specbench.harness.engines.load import cut_at_stop, cut_tokens
from specbench.harness.engines.native.stop_strings import StopWatch

PIECES = ["Que", "st", "ion", ":", " a", "b", "", "ab"]


def decode(ids: list[int]) -> str:
    return "".join(PIECES[i] for i in ids)


def test_text_ends_before_the_first_stop_string():
    assert cut_at_stop("one two three", ["three", "two", ""]) == "one "
    assert cut_at_stop("one", ["two", ""]) == "one"


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        ([4, 0, 1, 2, 3, 5], [4, 0, 1, 2, 3]),
        ([4, 5, 5], [4, 5, 5]),
        ([0, 1, 6, 2, 3, 0, 1, 2, 3], [0, 1, 6, 2, 3]),
        ([], []),
    ],
)
def test_tokens_end_with_the_one_that_completes_the_stop_string(ids, kept):
    assert cut_tokens(ids, ["Question:"], decode) == kept


def test_a_stop_string_over_many_steps_is_seen_when_its_last_token_comes():
    watch, ids, seen = StopWatch(["Question:"], decode), [], []
    for token in (4, 5, 0, 1, 2, 3):
        ids.append(token)
        seen.append(watch.is_stopped(ids))
    assert seen == [False] * 5 + [True]
    assert not StopWatch([""], decode).is_stopped([0])
