"""The hash, random lengths and arrival times."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from specbench.workloads.arrivals import arrival_times
from specbench.workloads.base import Prompt, Workload, WorkloadRequest
from specbench.workloads.random_lengths import load

PROMPT = Prompt(id="a", token_ids=(1, 2, 3), max_tokens=4, text="t", category="c", reference="r")


def sha(*prompts: Prompt) -> str:
    return Workload(name="w", prompts=prompts, rule="", source="").sha256


@pytest.mark.parametrize(
    "change",
    [{"id": "b"}, {"token_ids": (1, 2, 4)}, {"token_ids": (1, 2)}, {"token_ids": (3, 2, 1)}, {"max_tokens": 5}],
)
def test_hash_notices_what_the_model_sees(change):
    assert sha(replace(PROMPT, **change)) != sha(PROMPT)


def test_hash_notices_order_and_count_and_nothing_else():
    other = replace(PROMPT, id="b")
    assert len({sha(PROMPT, other), sha(other, PROMPT), sha(PROMPT), sha()}) == 4
    assert sha(replace(PROMPT, text="x", category="x", reference="x")) == sha(PROMPT)


def test_hash_is_the_same_on_every_machine():
    assert sha(PROMPT) == "4fc798aa692913206603c23898e71952a4953ddacf8428d61fb440d19c696559"


def test_hash_cannot_be_fooled_by_moving_a_boundary():
    left = (replace(PROMPT, token_ids=(1, 2)), replace(PROMPT, token_ids=(3,)))
    right = (replace(PROMPT, token_ids=(1,)), replace(PROMPT, token_ids=(2, 3)))
    assert sha(*left) != sha(*right)


@pytest.mark.parametrize(
    ("field", "value"),
    [("num_prompts", 0), ("output_len", 0), ("random_input_len", 0), ("random_output_len", -1), ("max_model_len", 1)],
)
def test_requests_refuse_what_makes_no_sense(field, value):
    with pytest.raises(ValueError, match=f"{field}: {value} is not allowed; allowed: [12] or more"):
        WorkloadRequest(**{"name": "random", field: value})


def random_workload(**changes):
    settings = {"name": "random", "num_prompts": 400, "vocab_size": 50, "random_input_len": 20, "random_output_len": 10}
    return load(WorkloadRequest(**{**settings, **changes}))


def test_without_a_ratio_all_lengths_are_the_asked_ones():
    workload = random_workload()
    assert {(len(prompt.token_ids), prompt.max_tokens) for prompt in workload.prompts} == {(20, 10)}
    assert {token for prompt in workload.prompts for token in prompt.token_ids} == set(range(50))
    assert workload.synthetic


def test_the_ratio_is_vllms_and_reaches_both_ends():
    workload = random_workload(random_range_ratio=0.5, num_prompts=2000)
    inputs = Counter(len(prompt.token_ids) for prompt in workload.prompts)
    outputs = Counter(prompt.max_tokens for prompt in workload.prompts)
    assert set(inputs) == set(range(10, 31)) and set(outputs) == set(range(5, 16))
    expected = 2000 / 21
    assert all(abs(count - expected) < 6 * math.sqrt(expected) for count in inputs.values())
    assert "as in vllm bench" in workload.rule


def test_random_workloads_are_seeded():
    assert random_workload().sha256 == random_workload().sha256 != random_workload(seed=1).sha256


def test_output_len_is_exact():
    workload = random_workload(random_range_ratio=0.5, output_len=7)
    assert {prompt.max_tokens for prompt in workload.prompts} == {7}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"random_range_ratio": 1.0}, "random_range_ratio: 1.0 is not allowed; allowed: 0 or more, below 1"),
        ({"random_range_ratio": -0.1}, "random_range_ratio: -0.1 is not allowed"),
        ({"vocab_size": 0}, "vocab_size: 0 is not allowed"),
        ({"max_model_len": 29}, "reach 30 tokens; allowed: up to max_model_len 29"),
        ({"max_model_len": 30, "random_range_ratio": 0.5}, "reach 45 tokens"),
    ],
)
def test_impossible_lengths_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        random_workload(**changes)


def test_arrivals_at_an_infinite_rate_are_all_at_once():
    assert arrival_times(3, math.inf, seed=0) == [0.0, 0.0, 0.0]
    assert arrival_times(0, 1.0, seed=0) == []


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_arrivals_have_the_asked_rate_and_spread(burstiness):
    times = arrival_times(20_000, 8.0, seed=1, burstiness=burstiness)
    gaps = np.diff([0.0, *times])
    assert times[-1] == pytest.approx(20_000 / 8.0)
    assert (gaps >= 0).all()
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.05)  # gamma's coefficient of variation
    assert times == arrival_times(20_000, 8.0, seed=1, burstiness=burstiness) != arrival_times(20_000, 8.0, seed=2)


@pytest.mark.parametrize(("rate", "burstiness"), [(1.0, 1e-4), (1e-320, 1.0)])
def test_arrivals_are_never_at_no_time(rate, burstiness):
    """All gaps of so small a shape are 0, and scaled to the rate none of them is a number."""
    with pytest.raises(ValueError, match="give gaps that no number can hold"):
        arrival_times(3, rate, seed=42, burstiness=burstiness)


def test_arrivals_after_a_time_that_no_clock_counts_are_refused():
    with pytest.raises(
        ValueError, match="request_rate: 1e-300 is not allowed with 3 requests; allowed: 3.33e-07 or mo"
    ):
        arrival_times(3, 1e-300, seed=0)
    assert arrival_times(3, 4e-7, seed=0)[-1] == pytest.approx(7.5e6)


@pytest.mark.parametrize(("rate", "burstiness"), [(0, 1), (-1, 1), (math.nan, 1), (1, 0), (1, math.inf)])
def test_arrivals_refuse_what_makes_no_sense(rate, burstiness):
    with pytest.raises(ValueError, match="is not allowed; allowed: above 0"):
        arrival_times(3, rate, seed=0, burstiness=burstiness)
