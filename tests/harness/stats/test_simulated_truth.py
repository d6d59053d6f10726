"""Simulated experiments whose truth is known, judged by the functions that judge real ones.

Noise as in real runs: 1 % within a block, 2 % of drift between blocks, normal or heavy-tailed (t with 3 degrees of
freedom, scaled to the same standard deviation). 1,000 experiments for each truth, fixed seeds.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from specbench.harness.stats.paired import holm, paired
from specbench.harness.stats.spread import crossed_interval
from specbench.harness.stats.verdict import decide

NUM_EXPERIMENTS = 1000
IN_BLOCK, DRIFT = 0.01, 0.02
TRUTHS = (0.0, 0.01, 0.02, 0.05)


def log_ratios(effect: float, num_blocks: int, noise: str, seed: int, in_block: float = IN_BLOCK) -> np.ndarray:
    """[experiments, blocks]: ln(B / A) of step times, where B is faster by `effect`."""
    draw = np.random.default_rng([seed, round(effect * 1000), num_blocks])
    shape = (NUM_EXPERIMENTS, num_blocks)

    def one_run() -> np.ndarray:
        if noise == "heavy":
            return in_block * draw.standard_t(3, shape) / math.sqrt(3)
        return in_block * draw.standard_normal(shape)

    block = 8.0 * np.exp(DRIFT * draw.standard_normal(shape))
    a_ms, b_ms = block * np.exp(one_run()), (1 - effect) * block * np.exp(one_run())
    return np.log(b_ms / a_ms)


@pytest.fixture(params=["normal", "heavy"])
def noise(request) -> str:
    return request.param


@pytest.mark.parametrize("num_blocks", [6, 10, 20])
@pytest.mark.parametrize("effect", TRUTHS)
def test_false_verdicts_are_rare_and_intervals_cover(noise, effect, num_blocks):
    found = paired(log_ratios(effect, num_blocks, noise, seed=1))
    verdicts = decide(found, found.p, "lower")
    wrong = ("regressed", "improved") if effect == 0 else ("regressed",)
    assert np.isin(verdicts, wrong).mean() <= 0.05
    truth = math.log(1 - effect)
    covered = ((found.low <= truth) & (truth <= found.high)).mean()
    assert 0.93 <= covered <= 0.97
    if effect >= 0.02:  # nor may an effect that matters be called none
        assert (verdicts == "equivalent").mean() <= 0.05


def test_two_percent_is_found_at_one_percent_noise(noise):
    found = paired(log_ratios(0.02, 10, noise, seed=2))
    assert (decide(found, found.p, "lower") == "improved").mean() >= 0.9
    slower = paired(-log_ratios(0.02, 10, noise, seed=2))
    assert (decide(slower, slower.p, "lower") == "regressed").mean() >= 0.9


def test_two_percent_is_found_beside_two_metrics_that_do_not_change(noise):
    """As `ab` judges: Holm over three gated metrics, of which one is truly faster."""
    three = [paired(log_ratios(e, 10, noise, seed)) for e, seed in ((0.02, 3), (0.0, 4), (0.0, 5))]
    adjusted = holm(np.stack([f.p for f in three], axis=-1))
    verdicts = [decide(f, adjusted[:, i], "lower") for i, f in enumerate(three)]
    assert (verdicts[0] == "improved").mean() >= 0.9
    false = np.isin(np.stack(verdicts[1:]), ("improved", "regressed")).any(axis=0).mean()
    assert false <= 0.05


def test_no_change_in_any_of_three_metrics(noise):
    """The chance that an A/A says change anywhere."""
    three = [paired(log_ratios(0.0, 10, noise, seed)) for seed in (6, 7, 8)]
    adjusted = holm(np.stack([f.p for f in three], axis=-1))
    verdicts = np.stack([decide(f, adjusted[:, i], "lower") for i, f in enumerate(three)])
    assert np.isin(verdicts, ("improved", "regressed")).any(axis=0).mean() <= 0.05


def test_quiet_machines_say_equivalent(noise):
    found = paired(log_ratios(0.0, 10, noise, seed=9, in_block=0.003))
    assert (decide(found, found.p, "lower") == "equivalent").mean() >= 0.95


def test_five_percent_is_always_found(noise):
    found = paired(log_ratios(0.05, 10, noise, seed=10))
    assert (decide(found, found.p, "lower") == "improved").mean() >= 0.98


def test_unpaired_runs_would_have_missed_it():
    """The drift that pairing cancels is what hides 2 % from two runs side by side: the test above tests pairing."""
    draw = np.random.default_rng(11)
    shape = (NUM_EXPERIMENTS, 10)
    a, b = (DRIFT * draw.standard_normal(shape) + IN_BLOCK * draw.standard_normal(shape) for _ in range(2))
    found = paired(math.log(0.98) + b - a)
    assert (decide(found, found.p, "lower") == "improved").mean() < 0.75


@pytest.mark.parametrize(
    ("shape", "spreads", "low", "high"),
    [
        ((3, 20), (0.05, 0.02), 0.70, 0.88),
        ((10, 20), (0.05, 0.02), 0.85, 0.96),
        ((3, 4), (0.02, 0.2), 0.78, 0.92),
        ((3, 20), (0.02, 0.2), 0.90, 0.99),
    ],
)
def test_how_often_a_runs_interval_holds_the_truth(shape, spreads, low, high):
    """docs/metrics.md says so: below 95% with few blocks or prompts. `spreads`: of blocks and of prompts."""
    rng, (num_blocks, num_prompts) = np.random.default_rng(0), shape
    held = []
    for _ in range(200):
        of_blocks = rng.normal(0, spreads[0], (num_blocks, 1))
        of_prompts = rng.normal(0, spreads[1], (1, num_prompts))
        found = crossed_interval(of_blocks + of_prompts + rng.normal(0, 0.02, shape))
        held.append(found.low <= 0 <= found.high)
    assert low < np.mean(held) < high
