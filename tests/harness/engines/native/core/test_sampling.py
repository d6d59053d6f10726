"""Conformance 14-16, 57, 58: greedy and sampled requests, seeds that do not depend on company, odd logits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from toy.checkpoints import llama_config, load_written, write_llama
from toy.compare import dense_pass
from toy.edits import STRATEGIES, named
from toy.engines import generate, make_engine, named_strategy, outputs, pad_rounds, request
from toy.oracle import assert_as_oracle, continuations
from toy.plans import CPU
from toy.prompts import text_prompt
from toy.scripted import PATTERNS, Script, Scripted

from specbench.harness.engines.native.models.linear import Linear
from specbench.kernels.philox import PURPOSE_SAMPLE, uniform

K = 3
KINDS = [
    dict(temperature=0.0),
    dict(temperature=1.0),
    dict(temperature=0.3, top_k=5),
    dict(temperature=0.7, top_p=0.6),
    dict(temperature=1.3, top_k=40, top_p=0.9),
]


def _mixed(num: int = 10, max_tokens: int = 16) -> list:
    return [
        request(i, text_prompt(i, 4 + 3 * i), max_tokens=max_tokens, seed=1000 + i, **KINDS[i % len(KINDS)])
        for i in range(num)
    ]


@pytest.mark.parametrize("pattern", ["perfect", "cycling"])
def test_c14_greedy_sampled_and_filtered_requests_in_one_batch(plan, pattern):
    requests = _mixed()
    oracle = continuations(plan, requests)
    engine = make_engine(plan, Scripted(K, Script.of(requests, oracle, PATTERNS[pattern](K))), max_num_seqs=5)
    assert_as_oracle(engine, generate(engine, requests), oracle)


# Alone a request has no company whose order could matter; all at once are in one batch whatever the order.
@pytest.mark.parametrize(("max_num_seqs", "order"), [(1, 1), (3, 1), (3, -1), (10, -1)])
@pytest.mark.parametrize("strategy", [name for name, _ in STRATEGIES])
def test_c15_seeded_output_depends_on_neither_company_nor_strategy(main_plan, order, max_num_seqs, strategy):
    requests = _mixed()[::order]
    oracle = continuations(main_plan, requests)
    engine = make_engine(main_plan, named(strategy), max_num_seqs=max_num_seqs)
    assert_as_oracle(engine, generate(engine, requests), oracle, f"{strategy} {order} {max_num_seqs}")


def test_c15_the_noise_of_a_token_is_keyed_by_seed_and_its_own_position():
    """Written out: argmax(logits / temperature + Gumbel(seed, position)), whatever round produced the token."""
    sampling = dict(max_tokens=20, temperature=0.8, seed=12345)
    prompt = text_prompt(3, 7)
    engine = make_engine(CPU, named_strategy("ngram", k=3, min_n=1))
    said = generate(engine, [request(0, prompt, **sampling)])[0].output_ids
    logits_TV, _ = dense_pass(engine.target, [*prompt, *said])
    position_R = torch.arange(len(prompt), len(prompt) + 20)
    noise_RV = -torch.log(-torch.log1p(-uniform(torch.full((20,), 12345), position_R, PURPOSE_SAMPLE, 128).double()))
    scores_RV = logits_TV[len(prompt) - 1 : -1].double() / 0.8 + noise_RV
    best_R2 = scores_RV.topk(2).values
    assert (best_R2[:, 0] - best_R2[:, 1]).min() > 1e-4, "a near-tie; choose another seed"
    assert said == scores_RV.argmax(1).tolist()


def test_c15_padded_rounds_do_not_change_a_sampled_output():
    requests = _mixed()
    oracle = continuations(CPU, requests)
    engine = make_engine(CPU, named_strategy("eagle", k=2, head="random"), max_num_seqs=6)
    pad_rounds(engine, [8, 16])
    assert_as_oracle(engine, generate(engine, requests), oracle)


def test_c16_temperature_near_nought_is_greedy(main_plan):
    greedy = [request(i, text_prompt(i, 8), max_tokens=24) for i in range(4)]
    oracle = continuations(main_plan, greedy)
    # Noise of a few logits times 1e-6 cannot reach the gap of the toy model's best two.
    cold = [request(i, text_prompt(i, 8), max_tokens=24, temperature=1e-6, seed=i) for i in range(4)]
    engine = make_engine(main_plan, named_strategy("ngram", k=3, min_n=1))
    finished = generate(engine, cold)
    for done in finished.values():
        done.sampling = replace(done.sampling, temperature=0.0)
    assert_as_oracle(engine, finished, oracle)


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
@pytest.mark.parametrize("sampling", KINDS, ids=str)
def test_c16_tokens_without_a_finite_logit_are_never_chosen(tmp_path, bad, sampling):
    banned = [3, 64, 127]
    heads: list[torch.Tensor] = []
    write_llama(tmp_path, llama_config(), change=lambda tensors: heads.append(tensors["lm_head.weight"].clone()))
    heads[0][banned] = bad if bad != bad else -3e38  # overflows, to infinities of both signs
    target = load_written(tmp_path)
    target.lm_head = Linear(heads[0])  # a checkpoint that is not finite would be refused
    requests = [request(i, text_prompt(i, 6), max_tokens=40, seed=i, **sampling) for i in range(4)]
    engine = make_engine(CPU, named_strategy("ngram", k=2, min_n=1), target=target)
    finished = generate(engine, requests)
    assert all(len(done.output_ids) == 40 for done in finished.values())
    said = {t for done in finished.values() for t in done.output_ids}
    # Equal rows of the head tie, also at +inf, and ties go to the lowest id; NaN never wins.
    assert not said & (set(banned) if bad != bad else set(banned[1:]))
    assert said <= set(range(128))


def test_c57_the_noise_advances_with_the_position_and_the_seed_fixes_it(plan):
    def run(seed: int) -> dict[int, list[int]]:
        # One prompt for all: only the noise tells these requests apart.
        same = [request(i, text_prompt(1, 6), max_tokens=24, temperature=5.0, seed=seed + i) for i in range(4)]
        return outputs(generate(make_engine(plan, named_strategy("ngram", k=2, min_n=1)), same))

    first, again, other = run(5), run(5), run(500)
    assert first == again
    assert len({tuple(v) for v in first.values()} | {tuple(v) for v in other.values()}) == 8
    # With fixed noise a nearly flat distribution would repeat one token for ever.
    assert all(len(set(tokens)) > 12 for tokens in first.values())


def test_c58_naive_eagle_sampled_alone_is_lossless(plan):
    """The pull request it is named after lost this: sampled, one request, one draft."""
    requests = [request(i, text_prompt(i, 9), max_tokens=20, temperature=1.0, seed=i) for i in range(3)]
    oracle = continuations(plan, requests)
    engine = make_engine(plan, named_strategy("naive-eagle", head="random"), max_num_seqs=1)
    assert_as_oracle(engine, generate(engine, requests), oracle)
