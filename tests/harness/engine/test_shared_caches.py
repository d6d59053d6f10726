"""Engines of one table keep their keys and values in the same memory and still say what each says alone."""

from __future__ import annotations

import pytest
from toy.engines import generate, named_strategy, request, toy_target

from specbench.harness.engine.config import EngineConfig
from specbench.harness.engine.engine import Engine
from specbench.harness.engine.target_cache import CachePool, OwnMemory
from specbench.kernels.attention.torch_attention import TorchAttention

STRATEGIES = {
    "no-spec": {},
    "eagle": {"k": 3, "head": "random"},
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
