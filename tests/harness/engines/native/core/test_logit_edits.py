"""Conformance 7, 17, 18: changed logits are those of the definitions under every strategy, greedy and sampled.

The oracle is written out by hand (toy/by_hand.py) and judges the tokens of no-spec and of every other strategy alike.
"""

from __future__ import annotations

from itertools import product

import pytest
import torch
from toy.backends import WithoutPadding
from toy.by_hand import assert_by_hand
from toy.edits import FEATURES, SCRIPTS, STOP, STRATEGIES, named, request_again, requests_with, scripted
from toy.engines import decode_rows, fill_mixed_steps, generate, make_engine, outputs, pad_rounds, request
from toy.operations import Operations
from toy.plans import CPU
from toy.prompts import text_prompt

from specbench.harness.engines.native.core import edit_buffers
from specbench.harness.engines.native.core import round as engine_round
from specbench.harness.engines.native.core.edit_buffers import Edit, EditBuffers
from specbench.harness.engines.native.core.logit_edits import edit_logits
from specbench.harness.engines.native.core.request import SamplingParams
from specbench.harness.engines.native.core.sampler import EditedMode, SamplingMode

BY_NAME = pytest.mark.parametrize("feature", FEATURES)


def check(engine, finished, where: str = "") -> None:
    for done in finished.values():
        assert_by_hand(engine.target, done, engine.config.max_model_len, where)


@BY_NAME
@pytest.mark.parametrize("strategy", [name for name, _ in STRATEGIES])
def test_c17_c18_every_strategy_says_what_the_definition_says(main_plan, feature, strategy):
    engine = make_engine(main_plan, named(strategy), max_num_batched_tokens=64)
    check(engine, generate(engine, requests_with(FEATURES[feature])), strategy)


@pytest.mark.parametrize(
    ("script", "feature"),
    [
        *product(("perfect", "tree"), FEATURES),
        *((script, "all") for script in SCRIPTS if script not in ("perfect", "tree")),
    ],
)
def test_c17_c18_whatever_is_accepted(main_plan, script, feature):
    """Drafts that are right to every depth: only then does a row's own history matter."""
    requests = requests_with(FEATURES[feature])
    strategy = scripted(script, requests, main_plan)
    engine = make_engine(main_plan, strategy, max_num_batched_tokens=64)
    check(engine, generate(engine, requests), script)
    accepted = [row.num_accepted for row in decode_rows(engine)]
    assert not any(accepted) if script == "adversarial" else max(accepted) == 3


def test_c17_c18_under_every_plan(plan):
    requests = requests_with(FEATURES["all"], num=9)
    strategy = scripted("random", requests, plan)
    engine = make_engine(plan, strategy, max_num_seqs=3, max_num_batched_tokens=7)
    check(engine, generate(engine, requests))


def test_c17_in_a_captured_layout(main_plan):
    """Padded rounds and padded mixed steps, as graphs hold them."""
    requests = requests_with(FEATURES["all"], num=7)
    expected = outputs(generate(make_engine(CPU, max_num_seqs=1), [request_again(r) for r in requests]))
    engine = make_engine(
        CPU, scripted("cycling", requests, CPU), max_num_seqs=5, max_num_batched_tokens=30, backend=WithoutPadding()
    )
    pad_rounds(engine, [4, 8])
    fill_mixed_steps(engine, 64)
    assert outputs(generate(engine, requests)) == expected


def test_c17_a_preempted_request_counts_what_it_said_before():
    requests = requests_with(FEATURES["frequency"], num=4, max_tokens=40)
    engine = make_engine(CPU, scripted("cycling", requests, CPU), num_pages=24)
    finished = generate(engine, requests)
    assert sum(r.num_preemptions for r in finished.values()) > 0
    check(engine, finished)


def test_c17_a_slot_forgets_the_request_before():
    """The first request's penalties, bias and text must not touch the second, which asks for nothing."""
    first, second = request(0, text_prompt(0, 30), max_tokens=30, **FEATURES["all"]), text_prompt(1, 5)
    plain = generate(make_engine(CPU), [request(1, second, max_tokens=20)])[1].output_ids
    engine = make_engine(CPU, max_num_seqs=1)
    assert generate(engine, [first, request(1, second, max_tokens=20)])[1].output_ids == plain
    third = request(2, second, max_tokens=20, frequency_penalty=0.3)
    check(engine, generate(engine, [third]))


def test_c17_a_plain_request_takes_a_slot_of_one_with_biases_and_bad_words(monkeypatch):
    """Beside another that has them, whose rows share its operations. What is none is cleared, not sent."""
    made = []
    for name in ("_bias", "_words"):
        kept = getattr(edit_buffers, name)
        monkeypatch.setattr(edit_buffers, name, lambda s, *rest, kept=kept: made.append(s) or kept(s, *rest))
    plain = generate(make_engine(CPU), [request(2, text_prompt(2, 9), max_tokens=20)])[2].output_ids
    asked = dict(allowed_token_ids=(1, 3, 5), bad_words=((plain[0],),))
    short, long = (request(i, text_prompt(i, 9), max_tokens=n, **asked) for i, n in ((0, 4), (1, 60)))
    engine = make_engine(CPU, max_num_seqs=2)
    assert generate(engine, [short, long, request(2, text_prompt(2, 9), max_tokens=20)])[2].output_ids == plain
    assert {row.batch_size for row in engine.log.rows if row.request_id == 2} == {2}, "it ran alone"
    assert made == [short.sampling] * 2 + [long.sampling] * 2


@pytest.mark.parametrize("strategy", ["no-spec", "eagle", "perfect"])
def test_c07_min_tokens_keeps_stop_ids_back_inside_a_round(main_plan, strategy):
    """A stop id that is by far the likeliest token comes at the first place where it may."""
    asked = dict(stop_token_ids=(STOP,), logit_bias=((STOP, 50.0),), max_tokens=30)
    requests = [request(i, text_prompt(i, 4 + i), min_tokens=i, **asked) for i in range(8)]
    made = scripted(strategy, requests, main_plan) if strategy == "perfect" else named(strategy)
    finished = generate(make_engine(main_plan, made), requests)
    assert {n: len(done.output_ids) for n, done in finished.items()} == {n: n + 1 for n in range(8)}
    assert all(done.output_ids[-1] == STOP for done in finished.values())


@pytest.mark.parametrize("strategy", ["random", "tree", *(name for name, _ in STRATEGIES)])
def test_c14_changes_are_each_requests_own(main_plan, strategy):
    """All features in one batch, so that every operation runs over every row."""
    requests = [
        request(i, text_prompt(i, 5 + i), max_tokens=16, seed=i, temperature=0.7 * (i % 2), **feature)
        for i, feature in enumerate([*FEATURES.values(), {}])
    ]
    made = scripted(strategy, requests, main_plan) if strategy in SCRIPTS else named(strategy)
    engine = make_engine(main_plan, made, max_num_seqs=len(requests), max_num_batched_tokens=64)
    check(engine, generate(engine, requests))


def test_what_is_off_costs_nothing(monkeypatch):
    """No operation and no buffer where nobody asks, and the modes that there always were."""
    plain = [SamplingParams(), SamplingParams(temperature=1.0), SamplingParams(temperature=1.0, top_k=3)]
    assert [SamplingMode.of([s]) for s in plain] == list(SamplingMode)

    def operations() -> list[str]:
        engine = make_engine(CPU, named("eagle"))
        with Operations() as counter:
            generate(engine, requests_with({}))
        return counter.names

    found = operations()
    for name in ("assign", "make_room"):
        monkeypatch.setattr(EditBuffers, name, lambda *arguments: None)
    monkeypatch.delattr(engine_round, "edit_logits")
    assert found == operations()


@pytest.mark.parametrize(
    ("asked", "edits"),
    [
        (dict(min_p=0.1), set()),  # greedy: the likeliest token stays
        (dict(min_p=0.1, temperature=1.0), {Edit.MIN_P}),
        (dict(min_tokens=3), set()),  # no stop id to keep back
        (dict(min_tokens=3, stop_token_ids=(1,)), {Edit.MIN_TOKENS}),
        (dict(banned_token_ids=(1,)), {Edit.BIAS}),
        (dict(bad_words=((1, 2),)), {Edit.WORDS}),
        (dict(presence_penalty=0.1), {Edit.PENALTIES}),
    ],
)
def test_a_batch_gets_the_operations_that_it_needs(asked, edits):
    mode = SamplingMode.of([SamplingParams(), SamplingParams(**asked)])
    assert mode.edits == edits
    assert isinstance(mode, EditedMode) == bool(edits)


def test_the_host_reads_nothing():
    """So that one graph can hold the round: sizes come from the layout alone."""
    engine = make_engine(CPU, named("eagle"))
    batch = engine.launcher.round_for(3, EditedMode(SamplingMode.SAMPLED, frozenset(Edit))).batch
    with Operations() as counter:
        edit_logits(torch.zeros(12, 128), batch.rows, torch.arange(12), engine.state, frozenset(Edit))
    reads = ("_local_scalar_dense", "nonzero", "item", "unique", "masked_select")
    assert counter.names and not [name for name in counter.names if any(read in name for read in reads)]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (dict(min_p=1.5), r"min_p: 1.5 is not allowed; allowed: 0 to 1"),
        (dict(min_tokens=-1), "min_tokens: -1 is not allowed"),
        (dict(min_tokens=9, max_tokens=8), "min_tokens: 9 is not allowed; allowed: 0 to 8 .max_tokens"),
        (dict(repetition_penalty=0.0), "repetition_penalty: 0.0 is not allowed; allowed: above 0"),
        (dict(presence_penalty=2.5), r"presence_penalty: 2.5 is not allowed; allowed: -2 to 2"),
        (dict(frequency_penalty=float("nan")), "frequency_penalty: nan is not allowed"),
        (dict(logit_bias=((1, 101.0),)), "logit_bias: 101.0 of token 1 is not allowed"),
        (dict(logit_bias=((1, 1.0), (1, 2.0))), "logit_bias: token 1 is given twice"),
        (dict(bad_words=((),)), "bad_words: one of 0 tokens is not allowed; allowed: 1 to 16 tokens"),
        (dict(bad_words=((1, 2),) * 33), "bad_words: 33 are not allowed; allowed: 0 to 32"),
        (dict(allowed_token_ids=(4,), bad_words=((4,),)), "allowed_token_ids: every one of them is banned"),
        (dict(allowed_token_ids=(4,), banned_token_ids=(4,)), "allowed_token_ids: every one of them is banned"),
        (dict(banned_token_ids=(-4,)), "banned_token_ids: token -4 is not allowed"),
    ],
)
def test_what_cannot_be_is_refused(asked, said):
    with pytest.raises(ValueError, match=said):
        SamplingParams(**asked)


@pytest.mark.parametrize(
    "asked",
    [
        dict(allowed_token_ids=(128,)),
        dict(banned_token_ids=(3, 500)),
        dict(bad_words=((3, 500),)),
        dict(logit_bias=((128, 1.0),)),
        dict(banned_token_ids=tuple(range(128))),
        dict(min_tokens=2, stop_token_ids=(1, 128)),
    ],
)
def test_ids_that_the_model_lacks_are_refused(asked):
    with pytest.raises(ValueError, match="the model has 0 to 127|all tokens of the model are banned"):
        make_engine(CPU).add(request(0, (1, 2), **asked))


def test_infinite_logits_stay_infinite():
    """No NaN out of what is banned twice."""
    engine = make_engine(CPU)
    asked = dict(banned_token_ids=(1, STOP), allowed_token_ids=(1, 2, STOP), stop_token_ids=(1, STOP), min_tokens=4)
    done = generate(engine, [request(0, (1, 2), max_tokens=6, repetition_penalty=2.0, **asked)])[0]
    assert done.output_ids == [2] * 6
    assert not torch.isnan(engine.state.edits.bias_SV).any()
