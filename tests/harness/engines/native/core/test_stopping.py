"""Conformance 5-7, 9, 10: stop ids, max_tokens and the model's length, wherever in a round they are met."""

from __future__ import annotations

import math

import pytest
from toy.engines import decode_rows, generate, make_engine, named_strategy, request
from toy.oracle import assert_as_oracle, continuations, ending
from toy.plans import CPU
from toy.prompts import text_prompt
from toy.scripted import PATTERNS, Script, Scripted

from specbench.harness.engines.native.core.request import FinishReason, SamplingParams

K = 4


def _stop_at(oracle: dict[int, list[int]], index: int, num: int, max_tokens: int = 30) -> list:
    """Requests that stop at the token which their continuation has at `index` (or where that first occurs)."""
    return [
        request(i, text_prompt(i, 5 + 3 * i), max_tokens=max_tokens, stop_token_ids=(oracle[i][index],))
        for i in range(num)
    ]


@pytest.mark.parametrize("pattern", ["perfect", "adversarial", "cycling"])
def test_c05_eos_positions(plan, pattern):
    """EOS as the prompt's first token, at every accepted position of a round and as its bonus token."""
    free = [request(i, text_prompt(i, 5 + 3 * i), max_tokens=30) for i in range(4)]
    oracle = continuations(plan, free)
    places = set()
    for index in range(12):
        requests = _stop_at(oracle, index, num=4)
        engine = make_engine(plan, Scripted(K, Script.of(requests, oracle, PATTERNS[pattern](K))))
        finished = generate(engine, requests)
        assert_as_oracle(engine, finished, oracle, f"stop at {index}")
        for number, done in finished.items():
            stop = done.sampling.stop_token_ids[0]
            assert done.finish_reason is FinishReason.STOP and done.output_ids.index(stop) == len(done.output_ids) - 1
            rows = decode_rows(engine, number)
            places.add(rows[-1].num_emitted - 1 if rows else "prompt")
    if pattern == "perfect":
        assert places == {"prompt", 0, 1, 2, 3, 4}, "some place in a round was never tested"


def test_c06_eos_in_a_rejected_draft_does_not_stop(plan):
    free = [request(i, text_prompt(i, 7), max_tokens=20) for i in range(4)]
    oracle = continuations(plan, free)
    requests = []
    for i, tokens in oracle.items():
        # Adversarial drafts are the right token plus one; those that the text itself never says become stop ids.
        wrong = [t for t in dict.fromkeys((x + 1) % 128 for x in tokens[2:20]) if t not in tokens[:20]][:8]
        assert wrong
        requests.append(request(i, text_prompt(i, 7), max_tokens=20, stop_token_ids=tuple(wrong)))
    engine = make_engine(plan, Scripted(K, Script.of(requests, oracle, PATTERNS["adversarial"](K))))
    finished = generate(engine, requests)
    assert_as_oracle(engine, finished, oracle)
    assert {done.finish_reason for done in finished.values()} == {FinishReason.LENGTH}


def test_c07_the_first_of_several_stop_ids_ends_and_no_stop_id_ignores_eos(plan):
    free = [request(i, text_prompt(i, 7), max_tokens=20) for i in range(3)]
    oracle = continuations(plan, free)
    several = tuple(dict.fromkeys(oracle[0][3:19]))[:8]
    prompts = [text_prompt(i, 7) for i in range(3)]
    requests = [
        request(0, prompts[0], max_tokens=20, stop_token_ids=several[::-1]),
        request(1, prompts[1], max_tokens=20, stop_token_ids=(*[t for t in range(128) if t not in oracle[1]][:8],)),
        request(2, prompts[2], max_tokens=20),
    ]
    engine = make_engine(plan, Scripted(K, Script.of(requests, oracle, PATTERNS["cycling"](K))))
    finished = generate(engine, requests)
    assert_as_oracle(engine, finished, oracle)
    assert [finished[i].finish_reason.value for i in range(3)] == ["stop", "length", "length"]


def test_c07_more_stop_ids_than_a_slot_holds_are_refused():
    with pytest.raises(ValueError, match="stop_token_ids: 9 ids are not allowed; allowed: 0 to 8"):
        SamplingParams(stop_token_ids=tuple(range(9)))


@pytest.mark.parametrize("pattern", ["perfect", "adversarial"])
def test_c09_max_tokens_inside_a_round(plan, pattern):
    requests = [request(i, text_prompt(i, 6), max_tokens=1 + i) for i in range(13)]
    oracle = continuations(plan, requests)
    engine = make_engine(plan, Scripted(K, Script.of(requests, oracle, PATTERNS[pattern](K))))
    finished = generate(engine, requests)
    assert_as_oracle(engine, finished, oracle)
    for i in range(13):
        assert len(finished[i].output_ids) == 1 + i and finished[i].finish_reason is FinishReason.LENGTH
    assert not decode_rows(engine, 0), "a request for one token needs no round"
    rows = decode_rows(engine)
    assert {r.truncated for r in rows} == ({True, False} if pattern == "perfect" else {False})


@pytest.mark.parametrize("pattern", ["perfect", "adversarial"])
@pytest.mark.parametrize("k", [1, 2, 5, 8])
@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_c10_the_model_length_is_reached_exactly(main_plan, pattern, k, page_size):
    most = 48
    requests = [request(i, text_prompt(i, most - 1 - i), max_tokens=100) for i in range(14)]
    oracle = continuations(main_plan, [request(i, text_prompt(i, most - 1 - i), max_tokens=14) for i in range(14)])
    script = Script.of(requests, oracle, PATTERNS[pattern](k))
    engine = make_engine(main_plan, Scripted(k, script), max_model_len=most, page_size=page_size)
    finished = generate(engine, requests)
    assert_as_oracle(engine, finished, oracle)
    assert all(done.num_tokens == most for done in finished.values())


@pytest.mark.parametrize("k", [1, 2, 4])
def test_c10_a_drafter_with_its_own_cache_at_the_model_length(plan, k):
    most = 40
    requests = [request(i, text_prompt(i, most - 1 - i), max_tokens=100) for i in range(8)]
    oracle = continuations(plan, [request(i, text_prompt(i, most - 1 - i), max_tokens=8) for i in range(8)])
    engine = make_engine(plan, named_strategy("eagle", k=k, head="random"), max_model_len=most)
    finished = generate(engine, requests)
    assert_as_oracle(engine, finished, oracle)
    assert all(done.num_tokens == most for done in finished.values())


def test_prompts_that_cannot_be_served_are_refused_on_arrival():
    engine = make_engine(CPU, max_model_len=16)
    for prompt, message in (((), "0 tokens"), (range(16), "16 tokens"), ((128,), "outside 0..127"), ((-1,), "outside")):
        with pytest.raises(ValueError, match=message):
            engine.add(request(1, prompt))
    small = make_engine(CPU, max_model_len=64, num_pages=5, page_size=4)
    with pytest.raises(ValueError, match="num_pages: request 3 needs 6 pages"):
        small.add(request(3, range(12), max_tokens=12))
    assert not engine.has_work and not small.has_work


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        (dict(temperature=1e-39), "temperature: 1e-39 of request 1 .* nearest allowed: 1e-30"),  # logits became inf
        (dict(temperature=math.inf), "temperature: inf .* 1e\\+30"),
        (dict(repetition_penalty=1e-40), "repetition_penalty: .* 1e-30"),  # as above
        (dict(repetition_penalty=1e39), "repetition_penalty: .* 1e\\+30"),
        (dict(top_k=2**31), "top_k: 2147483648 .* 2147483647"),
        (dict(seed=2**63), "seed: .* 9223372036854775807"),
        (dict(stop_token_ids=(3, 10**20)), "stop_token_ids: 1000.* 9223372036854775807"),  # of a broken config.json
    ],
    ids=str,
)
def test_numbers_that_no_slot_can_hold_are_refused_on_arrival(sampling, message):
    """Not once the request has its slot: the engine would be of no use after that."""
    engine = make_engine(CPU)
    with pytest.raises(ValueError, match=message):
        engine.add(request(1, (1, 2), **sampling))
    assert not engine.has_work


@pytest.mark.parametrize("seed", [-(2**63), 2**63 - 1])
def test_the_ends_of_what_a_slot_can_hold_are_served(seed):
    most = dict(top_k=2**31 - 1, max_tokens=2**40, seed=seed)
    engine = make_engine(CPU, max_model_len=8)
    for number, temperature in enumerate((0.0, 1e-30, 1e30)):
        done = generate(engine, [request(number, (1, 2), temperature=temperature, **most)])[number]
        assert done.num_tokens == 8


def test_endings_of_the_oracle():
    """The rule that the tests above compare with, by hand."""
    r = request(0, (1, 2), max_tokens=3, stop_token_ids=(9,))
    assert ending(r, [5, 9, 7, 8], 100) == ([5, 9], FinishReason.STOP)
    assert ending(r, [5, 6, 7, 9], 100) == ([5, 6, 7], FinishReason.LENGTH)
    assert ending(r, [5, 6, 9], 4) == ([5, 6], FinishReason.LENGTH)
