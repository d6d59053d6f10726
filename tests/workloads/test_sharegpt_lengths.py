"""ShareGPT's lengths without its text."""

from __future__ import annotations

import pytest

from specbench.workloads.base import WorkloadRequest
from specbench.workloads.sharegpt_lengths import load, measured_lengths


def request(**more) -> WorkloadRequest:
    return WorkloadRequest(**{"name": "sharegpt-lengths", "num_prompts": 50, "vocab_size": 100, **more})


def test_the_table_keeps_the_limits_it_was_made_with():
    lengths = measured_lengths()
    assert len(lengths) == 1000
    assert all(4 <= prompt <= 1024 and output >= 4 and prompt + output <= 2048 for prompt, output in lengths)


def test_prompts_have_lengths_of_the_table_and_ids_of_the_vocabulary():
    workload = load(request())
    pairs = [(len(prompt.token_ids), prompt.max_tokens) for prompt in workload.prompts]
    assert set(pairs) <= set(measured_lengths()) and len(set(pairs)) > 40
    assert {token for prompt in workload.prompts for token in prompt.token_ids} == set(range(100))
    assert workload.synthetic and "1,000 ShareGPT conversations" in workload.rule


def test_a_seed_decides_and_the_hash_tells():
    assert load(request()).sha256 == load(request()).sha256 != load(request(seed=1)).sha256


def test_what_does_not_fit_is_left_out_and_too_few_is_an_error():
    short = load(request(max_model_len=60))
    assert max(len(prompt.token_ids) + prompt.max_tokens for prompt in short.prompts) <= 60
    with pytest.raises(
        ValueError, match=r"num_prompts: 900 is not allowed; sharegpt-lengths has \d+ that pass its rule"
    ):
        load(request(max_model_len=60, num_prompts=900))


def test_an_output_length_for_all():
    assert {prompt.max_tokens for prompt in load(request(output_len=7)).prompts} == {7}


def test_a_vocabulary_is_needed():
    with pytest.raises(ValueError, match="vocab_size: 0 is not allowed"):
        load(request(vocab_size=0))
