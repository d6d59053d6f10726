"""Conformance 68: forced acceptance has the rates that were asked for, the same for every strategy."""

from __future__ import annotations

import math

import pytest
import torch
from toy.engines import decode_rows, generate, make_engine, named_strategy, request
from toy.plans import CPU
from toy.prompts import text_prompt

from specbench.harness.engines.native.core.synthetic import SyntheticAcceptance, parse_acceptance


@pytest.mark.parametrize("text", ["synthetic:rates=0.8/0.5/0.5/0.1", "synthetic:histogram=2/3/0/4/1"])
def test_c68_rates_by_position(text):
    acceptance = parse_acceptance(text, 4)
    num = 20_000
    accepted = acceptance.table(range(4), num // 4)
    for position, rate in enumerate(acceptance.marginal):
        measured = (accepted > position).double().mean().item()
        assert abs(measured - rate) < 3 * math.sqrt(max(rate * (1 - rate), 1e-9) / num), f"position {position}"


def test_c68_histogram_gives_its_own_distribution():
    acceptance = parse_acceptance("synthetic:histogram=2/3/0/4/1", 4)
    assert acceptance.marginal == pytest.approx((0.8, 0.5, 0.5, 0.1))
    counts = torch.bincount(acceptance.table([0], 20_000)[0], minlength=5) / 20_000
    assert counts.tolist() == pytest.approx([0.2, 0.3, 0.0, 0.4, 0.1], abs=0.012)


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_c68_whole_lengths_are_exact(plan, length):
    acceptance = parse_acceptance(f"synthetic:{length}", 4)
    assert acceptance.length == length
    engine = make_engine(plan, named_strategy("eagle", k=4, head="random"), acceptance=acceptance)
    generate(engine, [request(i, text_prompt(i, 5), max_tokens=41) for i in range(3)])
    assert {r.num_accepted for r in decode_rows(engine)} == {length - 1}


def test_c68_fractional_lengths_have_the_mean_and_the_least_variance():
    acceptance = parse_acceptance("synthetic:length=2.6", 4)
    assert acceptance.marginal == pytest.approx((1.0, 0.6, 0.0, 0.0))
    row = acceptance.table([5], 20_000)[0]
    assert set(row.tolist()) == {1, 2}
    assert 1 + row.double().mean().item() == pytest.approx(2.6, abs=0.012)


def test_c68_every_strategy_and_batch_sees_the_same_acceptance(main_plan):
    """Keyed by seed and position of the pending token: a request's rounds are the same whoever drafts."""

    def rounds(name: str, max_num_seqs: int) -> dict[int, list[int]]:
        acceptance = parse_acceptance("synthetic:rates=0.9/0.6/0.3", 3)
        engine = make_engine(
            main_plan, named_strategy(name, k=3, head="random"), acceptance=acceptance, max_num_seqs=max_num_seqs
        )
        generate(engine, [request(i, text_prompt(i, 5 + i), max_tokens=40, seed=i) for i in range(5)])
        return {i: [r.num_accepted for r in decode_rows(engine, i)] for i in range(5)}

    first = rounds("eagle", 4)
    assert first == rounds("naive-eagle", 4) == rounds("eagle", 1)
    assert len({tuple(x) for x in first.values()}) == 5, "requests have draws of their own"


def test_forced_acceptance_emits_the_drafts_and_takes_no_draft_that_is_missing():
    engine = make_engine(
        CPU, named_strategy("ngram", k=3, min_n=5, max_n=5), acceptance=parse_acceptance("synthetic:4", 3)
    )
    generate(engine, [request(0, range(20), max_tokens=9)])
    # Nothing of length five repeats: there is no draft to accept, whatever was asked for.
    assert {r.num_accepted for r in decode_rows(engine)} == {0}


def test_drifting_acceptance_has_each_length_in_turn():
    """High, low, high, each for so many positions of a request; seeds and positions draw as without drift."""
    acceptance = parse_acceptance("synthetic:drift=64/4.0/1.0/2.5", 3)
    parts = acceptance.table([3], 64 * 7).view(7, 64)
    assert (parts[[0, 3, 6]] == 3).all() and (parts[[1, 4]] == 0).all()
    assert set(parts[[2, 5]].flatten().tolist()) == {1, 2}
    still = parse_acceptance("synthetic:2.5", 3).table([3], 64 * 7).view(7, 64)
    assert (parts[2] == still[2]).all() and acceptance.description == "synthetic:drift=64/4.0/1.0/2.5"


@pytest.mark.parametrize("text", ["synthetic:rates=0.8/0.5/0.1", "synthetic:drift=16/3.0/1.5"])
def test_requests_admitted_together_have_the_rows_of_each_alone(text):
    acceptance = parse_acceptance(text, 3)
    seeds = [7, 0, 2**40 + 1]
    alone = torch.cat([acceptance.table([seed], 50) for seed in seeds])
    assert torch.equal(acceptance.table(seeds, 50), alone)
    assert alone.unique(dim=0).shape[0] == 3, "a request draws by its seed"


def test_an_engine_follows_the_drift():
    acceptance = parse_acceptance("synthetic:drift=16/3.0/1.0", 2)
    engine = make_engine(CPU, named_strategy("eagle", k=2, head="random"), acceptance=acceptance)
    generate(engine, [request(0, text_prompt(0, 15), max_tokens=60)])
    at, followed = 15, []
    for row in decode_rows(engine):
        followed.append(row.num_accepted == (2, 0)[at // 16 % 2])
        at += row.num_emitted
    assert len(followed) > 20 and all(followed)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fake", "'fake' is not known; allowed: real, synthetic:LENGTH"),
        ("synthetic", "is not known"),
        ("synthetic:", "is not known"),
        ("synthetic:two", "not a number"),
        ("synthetic:0.5", "allowed: 1 to k.1 = 4"),
        ("synthetic:4.1", "allowed: 1 to k.1 = 4"),
        ("synthetic:nan", "allowed: 1 to k.1 = 4"),
        ("synthetic:rates=0.5/0.6/0.1", "none above the one before"),
        ("synthetic:rates=1.1/0.6/0.1", r"each.* in \[0, 1\]"),
        ("synthetic:rates=nan/0.6/0.1", r"each.* in \[0, 1\]"),
        ("synthetic:rates=0.6/0.1", "gives 2 rates; k = 3"),
        ("synthetic:histogram=1/2/3", "needs k.1 = 4"),
        ("synthetic:histogram=0/0/0/0", "needs k.1 = 4"),
        ("synthetic:histogram=1/-1/1/1", "non-negative"),
        ("synthetic:histogram=nan/1/1/1", "rates .nan"),
        ("synthetic:median=3", "is not known"),
        ("synthetic:drift=64/2.0", "give how many tokens each length lasts, and two lengths"),
        ("synthetic:drift=0/2.0/1.0", "give how many tokens"),
        ("synthetic:drift=1.5/2.0/1.0", "give how many tokens"),
        ("synthetic:drift=inf/2.0/1.0", "give how many tokens"),
        ("synthetic:drift=64/2.0/9.0", "length 9.0 is not allowed"),
    ],
)
def test_c68_impossible_acceptances_are_refused(text, message):
    with pytest.raises(ValueError, match=f"acceptance: .*{message}"):
        parse_acceptance(text, 3)


def test_real_acceptance_is_none():
    assert parse_acceptance("real", 3) is None
    assert SyntheticAcceptance((1.0, 0.0), "x").length == 2.0


def test_an_arm_without_drafts_stays_real_but_the_words_are_checked():
    assert parse_acceptance("synthetic:3.0", 0) is None
    with pytest.raises(ValueError, match="allowed: real, synthetic"):
        parse_acceptance("sythetic:3.0", 0)
