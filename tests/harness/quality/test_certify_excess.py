"""Whether all regrets together are the target's own: exchangeable noise passes, a systematic excess does not."""

from __future__ import annotations

import pytest
import torch

from specbench.harness.quality.certificate.excess import MAX_RATIO, measure_excess

NUM_POSITIONS, NUM_ARRANGEMENTS = 1500, 3


def _regrets(generator: torch.Generator, noise: float, gap_N: torch.Tensor) -> torch.Tensor:
    """Of a choice between two tokens whose logits are `gap_N` apart, under Gaussian errors."""
    flipped_N = noise * torch.randn(len(gap_N), generator=generator) > gap_N
    return torch.where(flipped_N, gap_N, 0.0)


def _excess(seed: int, noise: float, num_positions: int = NUM_POSITIONS):
    """An arm with `noise` times the error of the target's own passes."""
    generator = torch.Generator().manual_seed(seed)
    gap_N = 8 * torch.rand(num_positions, generator=generator)
    own = [_regrets(generator, 0.2, gap_N) for _ in range(NUM_ARRANGEMENTS)]
    return measure_excess(_regrets(generator, 0.2 * noise, gap_N), torch.stack(own))


def test_the_same_noise_passes_whatever_it_draws():
    assert all(_excess(seed, 1.0).ok for seed in range(300))


def test_a_fifth_more_noise_is_a_kernels_own_affair():
    assert all(_excess(seed, 1.2).ok for seed in range(300))


def test_four_times_the_noise_fails_with_enough_positions():
    assert sum(not _excess(seed, 4.0).ok for seed in range(100)) >= 99
    assert all(_excess(seed, 4.0, num_positions=20).ok for seed in range(100)), "too few to say anything"


@pytest.mark.parametrize(("num_flips", "ok"), [(13, True), (14, False)])
def test_equal_flips_count_by_their_square_root(num_flips, ok):
    regret_N = torch.zeros(100)
    regret_N[:num_flips] = 0.3
    found = measure_excess(regret_N, torch.zeros(2, 100))
    assert found.statistic == pytest.approx(num_flips**0.5) and found.num_disputed == num_flips
    assert found.ok is ok


def test_the_arrangement_with_most_regret_is_the_measure():
    regret_N, own_AN = torch.full((400,), 0.1), torch.zeros(2, 400)
    own_AN[1] = 0.1 / MAX_RATIO
    found = measure_excess(regret_N, own_AN)
    assert found.target_total == pytest.approx(400 * 0.1 / MAX_RATIO, rel=1e-5)
    assert not measure_excess(1.1 * regret_N, own_AN).ok and measure_excess(0.99 * regret_N, own_AN).ok


def test_nothing_disputed_is_no_excess():
    found = measure_excess(torch.zeros(10), torch.zeros(3, 10))
    assert found.ok and found.p_value == 1.0 and found.statistic == 0.0


def test_scores_that_are_no_numbers_do_not_pass():
    regret_N = torch.zeros(10)
    regret_N[3] = torch.inf
    found = measure_excess(regret_N, torch.zeros(2, 10))
    assert found.statistic != found.statistic and not found.ok
