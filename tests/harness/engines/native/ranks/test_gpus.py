"""On two and four GPUs, every graph plan and every way to sum says what one GPU says."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from toy.alive import is_alive
from toy.byte_tokenizer import write_byte_tokenizer
from toy.checkpoints import llama_config, write_llama
from toy.expert_checkpoints import write_fp8_experts
from toy.split_runs import CONFIG, LOAD, Kept, aborted_midway, opened, said_by

from specbench.harness.engines.native.models.all_reduce import METHODS
from specbench.harness.engines.warmup import WarmUp
from specbench.harness.spec.arm import parse_arm

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
PLANS = ("none", "piecewise", "full_decode_only", "full_and_piecewise", "full", "one", "one_and_full")
ARMS = (
    "no-spec:graph=full,sync=none",
    *(f"eagle:k=3,head=random,graph={plan}" for plan in PLANS),
    "eagle:k=2,head=random-eagle1,graph=one,sync=none",
    "eagle-topk:num_steps=2,topk=2,num_draft_tokens=4,head=random",
    "draft-model:k=2,draft=self:1,graph=full_decode_only",
)
aborted_early = partial(aborted_midway, num_tokens=6)  # later, rounds that run ahead have ended the request
ON_GPU = replace(CONFIG, device="cuda", load_format="auto", arms=tuple(map(parse_arm, ARMS)))


@pytest.fixture(scope="module")
def on_one(tmp_path_factory):
    """Of a model whose heads four ranks can share."""
    model = tmp_path_factory.mktemp("model")
    write_llama(model, llama_config(num_key_value_heads=4, vocab_size=260))
    write_byte_tokenizer(model)
    return replace(ON_GPU, model=str(model))


@pytest.fixture(scope="module")
def one(on_one):
    return opened(on_one)


@pytest.fixture(params=[2, 4])
def num_ranks(request):
    if torch.cuda.device_count() < request.param:
        pytest.skip(f"needs {request.param} GPUs")
    return request.param


@pytest.mark.parametrize(("method", "draft_size"), [*((method, 0) for method in METHODS), ("auto", 1)])
def test_same_tokens_and_drafts_as_on_one_gpu(on_one, one, num_ranks, method, draft_size):
    """fp32: sums of parts round otherwise, which these logits are too far apart to show."""
    config = replace(on_one, tensor_parallel_size=num_ranks, all_reduce=method, draft_tensor_parallel_size=draft_size)
    split = opened(config)
    pids = split[0]._ranks.pids
    try:
        for arm in config.arms:
            expected, found = said_by(one, on_one, arm.text), said_by(split, config, arm.text)
            assert found.requests == expected.requests and found.steps == expected.steps, (arm.text, method)
    finally:
        split[0].close()
    assert not any(map(is_alive, pids))


def test_a_warmed_block_with_captured_graphs(on_one, num_ranks):
    """Every rank captures the same graphs in the same order; afterwards all have gone the same way."""
    config = replace(on_one, tensor_parallel_size=num_ranks)
    engine, arms = opened(config)
    sink = Kept()
    with engine.deploy(arms[parse_arm(ARMS[6]).text], config, Path(os.devnull)) as deployment:
        deployment.warm_up(LOAD, WarmUp(window_s=0.05, max_s=1.0))
        deployment.measure(LOAD, sink)
    engine.close()
    assert len(sink.requests) == len(LOAD)


@pytest.mark.parametrize("text", ["no-spec:graph=full,sync=none", "eagle:k=3,head=random,graph=one"])
def test_a_request_that_is_aborted_leaves_the_others_as_on_one(on_one, one, num_ranks, text):
    text, config = parse_arm(text).text, replace(on_one, tensor_parallel_size=num_ranks)
    with one[0].deploy(one[1][text], on_one, Path(os.devnull)) as deployment:
        expected = aborted_early(deployment)
    engine, arms = opened(config)
    try:
        with engine.deploy(arms[text], config, Path(os.devnull)) as deployment:
            assert deployment.look(aborted_early) == expected
    finally:
        engine.close()
    assert expected[0][1] == "abort"


def test_an_fp8_mixture_of_experts_from_files(tmp_path):
    """In fp32, where E4M3 is dequantised: a rank's own activation scales would move the sums of bf16."""
    few = tuple(arm for arm in ON_GPU.arms if "graph=one" in arm.text or arm.text.startswith("no-spec"))
    config = replace(ON_GPU, arms=few, model=str(write_fp8_experts(tmp_path)), num_pages=None)
    split = replace(config, tensor_parallel_size=2)
    whole, two = opened(config), opened(split)
    try:
        for arm in config.arms:
            expected, found = said_by(whole, config, arm.text), said_by(two, split, arm.text)
            assert found.requests == expected.requests and found.steps == expected.steps, arm.text
    finally:
        two[0].close()
