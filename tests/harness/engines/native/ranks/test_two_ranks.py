"""Two processes over gloo say what one says: every strategy, greedy and sampled, the same drafts accepted."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from toy.alive import is_alive
from toy.expert_checkpoints import write_fp8_experts
from toy.patient_rank import lost
from toy.ranks import watched_ranks
from toy.split_runs import CONFIG as SMALL
from toy.split_runs import LOAD, PROMPTS, Kept, aborted_midway, has_found_an_algorithm, opened, said_by

from specbench.harness.engines.warmup import WarmUp
from specbench.harness.spec.arm import parse_arm
from specbench.kernels import cublas_choice

ARMS = (
    "no-spec",
    "ngram:k=3,min_n=1",
    "eagle:k=3,head=random",
    "eagle:k=2,head=random-eagle1",
    "eagle-topk:num_steps=2,topk=2,num_draft_tokens=4,head=random",
    "naive-eagle:k=1,head=random",
    "parallel-eagle:k=3,head=random",
    "draft-model:k=2,draft=self:1",
)
CONFIG = replace(SMALL, arms=tuple(map(parse_arm, ARMS)))


@pytest.fixture(scope="module")
def one():
    return opened(CONFIG)


@pytest.fixture(scope="module")
def two():
    engine, arms = opened(replace(CONFIG, tensor_parallel_size=2))
    yield engine, arms
    pids = engine._ranks.pids
    engine.close()
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize("text", ARMS)
def test_same_tokens_same_drafts_accepted_same_steps(one, two, text):
    text = parse_arm(text).text
    expected, found = said_by(one, CONFIG, text), said_by(two, replace(CONFIG, tensor_parallel_size=2), text)
    assert found.requests == expected.requests and len(found.requests) == 3
    assert text != "no-spec" or any(preempted for *_, preempted in found.requests.values())
    assert found.steps == expected.steps


def test_an_fp8_mixture_of_experts_from_files(tmp_path):
    """Each process reads its part of every expert; rounds that read experts are counted alike."""
    texts = ("no-spec", "eagle:k=2,head=random")
    config = replace(
        CONFIG,
        model=str(write_fp8_experts(tmp_path)),
        load_format="auto",
        arms=tuple(map(parse_arm, texts)),
        num_pages=None,
    )
    split = replace(config, tensor_parallel_size=2)
    whole, two = opened(config), opened(split)
    for arm in config.arms:
        expected, found = said_by(whole, config, arm.text), said_by(two, split, arm.text)
        assert found.requests == expected.requests and found.steps == expected.steps
    counters = []
    for (engine, its_arms), its_config in ((whole, config), (two, split)):
        sink = Kept()
        with engine.deploy(its_arms[config.arms[1].text], its_config, Path(os.devnull)) as deployment:
            deployment.measure(LOAD, sink)
        counters.append({name: value for name, value in sink.counters.items() if "experts" in name})
    assert counters[0] == counters[1] and counters[0]["engine.num_experts"] == 6
    assert 2 < counters[0]["engine.experts_per_decode_pass"] <= 6
    two[0].close()


@pytest.mark.parametrize("text", ["no-spec", "eagle:k=3,head=random"])
def test_a_request_that_is_aborted_leaves_the_others_as_on_one(one, two, text):
    text = parse_arm(text).text
    with one[0].deploy(one[1][text], CONFIG, Path(os.devnull)) as deployment:
        expected = aborted_midway(deployment)
    config = replace(CONFIG, tensor_parallel_size=2)
    with two[0].deploy(two[1][text], config, Path(os.devnull)) as deployment:
        assert deployment.look(aborted_midway) == expected
    assert expected[0][1] == "abort" and {how for _, how, _ in (expected[1], expected[2])} == {"length"}
    assert text != "no-spec" or any(preempted for *_, preempted in expected.values())


def test_a_block_whose_requests_arrive_by_the_clock_agrees_on_each_arrival(two):
    engine, arms = two
    config = replace(CONFIG, tensor_parallel_size=2)
    with engine.deploy(arms["no-spec"], config, Path(os.devnull)) as deployment:
        assert deployment.described.config == {
            "tensor_parallel_size": "2", "draft_tensor_parallel_size": "2", "all_reduce": "gloo"
        }  # fmt: skip
        deployment.check(LOAD)
        with pytest.raises(ValueError, match="max_model_len"):
            deployment.check(replace(LOAD, prompts=[replace(PROMPTS[0], token_ids=tuple(range(80)))], arrival_s=[0.0]))
        warmup = WarmUp(window_s=0.01, max_s=0.05)
        deployment.warm_up(LOAD, warmup)
        assert warmup.num_rounds > 0
        at_once, by_clock = Kept(), Kept()
        deployment.measure(LOAD, at_once)
        deployment.measure(replace(LOAD, arrival_s=[0.0, 0.02, 0.04]), by_clock)
    assert at_once.counters["ranks.agreements"] == 0 < by_clock.counters["ranks.agreements"]
    assert {n: said for n, (said, *_) in at_once.requests.items()} == {
        n: said for n, (said, *_) in by_clock.requests.items()
    }


def test_what_warming_up_adds_to_the_description(one, two):
    found = {"cublas.320x6144x4096.bfloat16": "another algorithm than torch's, 0.900 of its time"}
    with one[0].deploy(one[1]["no-spec"], CONFIG, Path(os.devnull)) as deployment:
        assert deployment.described.config == {}
        has_found_an_algorithm(deployment)
        try:
            assert deployment.described.config == found
        finally:
            cublas_choice._known.cache_clear()
    with two[0].deploy(two[1]["no-spec"], replace(CONFIG, tensor_parallel_size=2), Path(os.devnull)) as deployment:
        before = deployment.described.config
        deployment.look(has_found_an_algorithm)
        deployment.warm_up(LOAD, WarmUp(window_s=0.01, max_s=0.05))
        assert deployment.described.config == before | found


def test_a_rank_killed_in_the_middle_of_a_block_ends_it_and_what_had_ended_is_kept(one, monkeypatch):
    """The drafter is whole on every rank here; it drafts the same."""
    watched_ranks(monkeypatch, "toy.patient_rank")
    plain = replace(CONFIG, num_pages=None)
    config = replace(plain, tensor_parallel_size=2, draft_tensor_parallel_size=1, arms=CONFIG.arms[2:3])
    text = parse_arm(ARMS[2]).text
    engine, arms = opened(config)
    assert said_by((engine, arms), config, text).requests == said_by(one, plain, text).requests
    pids = engine._ranks.pids

    class Killer(Kept):
        def request(self, row) -> None:
            super().request(row)
            os.kill(pids[1], signal.SIGKILL)
            self.killed_at = time.monotonic()
            lost(engine._ranks)

    short_and_long = [replace(PROMPTS[0], max_tokens=2), replace(PROMPTS[1], max_tokens=50)]
    sink = Killer()
    with engine.deploy(arms[text], config, Path(os.devnull)) as deployment:
        with pytest.raises(RuntimeError, match="rank 1 was killed by signal 9"):
            deployment.measure(replace(LOAD, prompts=short_and_long, arrival_s=[0.0] * 2), sink)
        assert time.monotonic() - sink.killed_at < 30
    assert list(sink.requests) == [0] and not any(map(is_alive, pids))
    engine.close()
