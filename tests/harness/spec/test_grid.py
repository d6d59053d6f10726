"""Which arms a sweep has: arguments times numbers of drafts, refused ones with their reason."""

from __future__ import annotations

import functools

import pytest

from specbench.harness.engines.native.arms import resolve_arm
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.grid import make_grid
from specbench.harness.spec.options import parse_numbers


def grid(arguments, num_drafts=(1, 2), **engine):
    check = functools.partial(resolve_arm, device="cpu", synthetic_weights=False)
    return make_grid(arguments, num_drafts, "specbench", lambda text: parse_arm(text, engine), check)


def test_every_strategy_at_every_number_of_drafts():
    made = grid(["no-spec", "ngram", "eagle:head=random"])
    assert [(r.label, r.family, r.num_drafts) for r in made.rows] == [
        ("no-spec", "no-spec", None),
        ("ngram:k=1", "ngram", 1),
        ("ngram:k=2", "ngram", 2),
        ("eagle:k=1,head=random", "eagle:head=random", 1),
        ("eagle:k=2,head=random", "eagle:head=random", 2),
    ]
    assert made.notes == () and [arm.label for arm in made.arms] == [row.label for row in made.rows]


def test_the_baseline_is_added_and_said():
    made = grid(["ngram"])
    assert made.rows[0].label == "no-spec" and "no-spec was added" in made.notes[0]
    assert grid(["no-spec:graph=none", "ngram"]).notes == ()


def of_engines(arguments):
    return make_grid(arguments, (2,), "specbench", parse_arm, lambda arm: arm).rows


@pytest.mark.parametrize(
    ("arguments", "added"),
    [
        (["ngram", "vllm/ngram", "vllm/mtp"], ["no-spec", "vllm/no-spec"]),
        (["no-spec", "vllm/ngram"], ["vllm/no-spec"]),
        (["ngram", "vllm/no-spec"], ["no-spec"]),
        (["specbench/no-spec", "ngram"], []),
        (["vllm/ngram:python=/a/python,k=3"], ["vllm/no-spec:python=/a/python"]),
        (["no-spec", "openai/as-served:url=http://a/v1", "vllm/ngram:command=serve"], []),
    ],
)
def test_every_engine_has_its_own_baseline(arguments, added):
    labels = [row.label for row in of_engines(arguments)]
    assert [label for label in labels if "no-spec" in label and label not in arguments] == added


def test_an_argument_with_its_own_number_stays():
    made = grid(["ngram:k=3,max_n=4", "ngram:max_n=4"])
    assert [(r.label, r.num_drafts) for r in made.rows[1:]] == [
        ("ngram:k=3,max_n=4", 3),
        ("ngram:k=1,max_n=4", 1),
        ("ngram:k=2,max_n=4", 2),
    ]
    assert {r.family for r in made.rows[1:]} == {"ngram:max_n=4"}
    (theirs,) = grid(["ngram:num_speculative_tokens=3,max_n=4"]).rows[1:]
    assert (theirs.family, theirs.num_drafts) == ("ngram:max_n=4", 3)


def test_trees_are_swept_over_their_depth():
    made = grid(["eagle-topk:topk=4,num_draft_tokens=9,head=random"], (1, 3))
    shallow, deep = made.rows[1:]
    assert "num_draft_tokens=9 is not allowed" in shallow.refused
    assert shallow.label not in [arm.label for arm in made.arms]
    assert deep.label == "eagle-topk:num_steps=3,topk=4,num_draft_tokens=9,head=random" and deep.num_drafts == 3


def test_what_is_not_legal_is_a_row_with_its_reason():
    made = grid(["ngram"], (1, 2, 17), acceptance="synthetic:2.5")
    assert [bool(row.refused) for row in made.rows] == [False, True, False, True]
    assert made.rows[1].refused.startswith("acceptance: synthetic length 2.5 is not allowed")
    assert "k=17 is not allowed" in made.rows[3].refused and len(made.arms) == 2


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("ngram:colour=1", "unknown option 'colour'"),
        ("eagel", "did you mean 'eagle'"),
        ("ngram:k=99", "k=99 is not allowed"),
        ("ngram:k=1,acceptance=synthetic:5", "none of its arms can run"),
        ("ngram:k", "is not key=value"),
    ],
)
def test_an_argument_of_which_nothing_can_run_is_bad_input(argument, words):
    with pytest.raises(ValueError, match=words):
        grid(["no-spec", argument])


def test_numbers():
    assert parse_numbers("max_concurrency", "16, 1,4", "1,4") == (1, 4, 16)


@pytest.mark.parametrize("text", ["", "1,1", "0,2", "1,x", "-1", "1.5", "1,\uff14"])
def test_bad_numbers(text):
    with pytest.raises(ValueError, match="num_drafts: .* allowed: different numbers >= 1, as 1,4"):
        parse_numbers("num_drafts", text, "1,4")
