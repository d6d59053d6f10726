"""Engines of one table keep their keys and values in the same memory and still say what each says alone."""

from __future__ import annotations

import pytest
import torch
from toy.engines import generate, named_strategy, request, toy_target

from specbench.harness.engines.native.core.config import EngineConfig
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.target_cache import CachePool, OwnMemory
from specbench.harness.run.prepare import prepare
from specbench.harness.run.progress import NullProgress
from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.conditions import RunConfig
from specbench.kernels.attention.torch_attention import TorchAttention

STRATEGIES = {
    "no-spec": {},
    "eagle": {"k": 3, "head": "random"},
    "parallel-eagle": {"k": 3, "head": "random"},
    "eagle-topk": {"num_steps": 2, "topk": 2, "num_draft_tokens": 4, "head": "random"},
    "draft-model": {"k": 2, "draft": "self:1"},
}


def engine(name: str, memory) -> Engine:
    config = EngineConfig(max_model_len=160, max_num_seqs=4, page_size=4, max_num_batched_tokens=24)
    strategy = named_strategy(name, **STRATEGIES[name])
    return Engine(config, toy_target(), strategy, TorchAttention(), cache_memory=memory)


def outputs(one: Engine) -> dict[int, list[int]]:
    requests = [request(i, range(1 + i, 20 + 3 * i), max_tokens=24) for i in range(6)]
    return {number: done.output_ids for number, done in generate(one, requests).items()}


@pytest.mark.parametrize("repeats", [2])
def test_engines_in_turn_over_one_memory_give_their_own_outputs(repeats):
    pool = CachePool()
    shared = {name: engine(name, pool.lease()) for name in STRATEGIES}
    alone = {name: outputs(engine(name, OwnMemory())) for name in STRATEGIES}
    for _ in range(repeats):
        for name, one in shared.items():
            assert outputs(one) == alone[name], name


def test_arms_are_built_so_that_each_cache_has_one_memory(monkeypatch):
    """A larger cache later would leave the smaller one's memory to the engines that were captured with it."""
    arms = tuple(
        ArmConfig(label=name, strategy=name, options={key: str(value) for key, value in options.items()})
        for name, options in STRATEGIES.items()
    )
    workload = dict(dataset_name="random", num_prompts=2, seed=1, max_model_len=160, random_input_len=20)
    config = RunConfig(arms=arms, **workload, model="toy", load_format="dummy", device="cpu", page_size=4)
    taken = []
    monkeypatch.setattr(OwnMemory, "take", lambda self, shape, *rest: taken.append(shape) or torch.zeros(shape))
    run = prepare(config, NullProgress())
    assert set(run.deployments.labels) == set(STRATEGIES)
    assert len(taken) == 4, "keys and values of the target and of one drafter layer, each once"
