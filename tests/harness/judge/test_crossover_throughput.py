"""Intervals of throughput: what is replayed against real loops, and against experiments with a known truth."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest

from specbench.harness.stats.crossover import PairedBlocks, draw, log_tps, ratio_of


def closed_loop(tokens: np.ndarray, service: np.ndarray, load: int) -> float:
    """TPS of requests sent in order, `load` of them at once."""
    places = [0.0] * load
    for duration in service:
        heapq.heapreplace(places, places[0] + duration)
    return tokens.sum() / max(places)


def loops(rng, num_blocks: int, num_prompts: int, load: int) -> PairedBlocks:
    """Blocks of both arms, whose prompts differ in length and in what they gain."""
    tokens_P, gain_P = rng.integers(20, 200, num_prompts).astype(float), rng.normal(0.2, 0.25, num_prompts)
    noise_2BP = rng.normal(0, 0.02, (2, num_blocks, num_prompts))
    arm_BP, base_BP = tokens_P / np.exp(gain_P + noise_2BP[0]), tokens_P / np.exp(noise_2BP[1])
    tps = [[closed_loop(tokens_P, own_P, load) for own_P in side_BP] for side_BP in (arm_BP, base_BP)]
    return PairedBlocks(
        log_tpot_BP=np.zeros((num_blocks, num_prompts)),
        log_tps_B=np.log(np.array(tps[0]) / tps[1]),
        tokens_BP=(np.tile(tokens_P, (num_blocks, 1)),) * 2,
        service_ns_BP=(arm_BP, base_BP),
        load=load,
    )


def test_one_after_the_other_the_throughput_is_tokens_over_time():
    """At load 1 a resample differs from another exactly as its tokens over its times."""
    pairs = loops(np.random.default_rng(4), 2, 6, load=1)
    order = np.array([[0, 0, 2, 4, 4, 4], [1, 2, 3, 4, 5, 0]])
    found = log_tps(pairs, np.ones((2, 2)), order)
    arm, base = (np.log(pairs.service_ns_BP[side].mean(axis=0)[order].sum(axis=1)) for side in (0, 1))
    assert found[0] - found[1] == pytest.approx(base[0] - arm[0] - base[1] + arm[1])
    assert found.mean() == pytest.approx(pairs.log_tps_B.mean()) == log_tps(pairs, np.ones((1, 2)))[0]


def test_a_replay_of_what_was_sent_takes_as_long():
    """With one block, differences between two orders of the same requests are those of two real loops."""
    pairs = loops(np.random.default_rng(5), 1, 12, load=3)
    orders = np.stack([np.arange(12), np.arange(12)[::-1]])
    found = log_tps(pairs, np.ones((2, 1)), orders)
    real = [
        math.log(closed_loop(*(own[0][order] for own in (pairs.tokens_BP[side], pairs.service_ns_BP[side])), 3))
        for order in orders
        for side in (0, 1)
    ]
    assert found[0] - found[1] == pytest.approx(real[0] - real[1] - real[2] + real[3])


@pytest.mark.parametrize("load", [1, 8])
def test_the_interval_of_throughput_holds_the_truth(load):
    """Also where the end of the window, with places empty, is a good part of it."""
    num_prompts, num_experiments = 32, 120
    truth = np.mean([loops(np.random.default_rng(5000 + n), 1, num_prompts, load).log_tps_B[0] for n in range(600)])
    draws, hits = draw({"a": 5}, num_prompts, 400), 0
    for seed in range(num_experiments):
        pairs = loops(np.random.default_rng(seed), 5, num_prompts, load)
        found = ratio_of(0.0, log_tps(pairs, draws.blocks_RB["a"], draws.order_RN))
        hits += found.low <= math.exp(truth) <= found.high
    assert 0.87 <= hits / num_experiments <= 0.99, hits
