"""From a resolved arm to an engine of ours that can run it."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from specbench.harness.engines.native.core.config import EngineConfig
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import Request
from specbench.harness.engines.native.core.target_cache import CacheMemory
from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.ranges import ranges_named
from specbench.harness.registry import ATTENTION_BACKENDS, STATE_UPDATES, lookup
from specbench.harness.spec.conditions import RunConfig

from .arms import ResolvedArm

_MIN_MIXED_CHUNK, _MIXED_CHUNK_FLOPS, _MIXED_CHUNK_FLOPS_WITH_DRAFTS = 256, 6e12, 8e12


def page_size_for(config: RunConfig, device: torch.device) -> int:
    """On a CPU, which views runs of pages, large pages are best; 16 is what GPU engines use."""
    return config.page_size or (128 if device.type == "cpu" else 16)


def usual_mixed_chunk(model: ModelConfig, num_drafts: int) -> int:
    """Prompt tokens of a step that also decodes: as many as keep a Hopper GPU busy for 9 ms (at 650 TFLOP/s), but at
    least 256, since the requests that decode wait for them; with drafts for 12 ms, since a step then brings several
    tokens and takes longer anyway (both measured: benchmarks/race.md). `model`: what one GPU has of it. Experts count
    whole."""
    flops = _MIXED_CHUNK_FLOPS_WITH_DRAFTS if num_drafts else _MIXED_CHUNK_FLOPS
    return max(_MIN_MIXED_CHUNK, int(flops / (2 * model.num_layer_weights)))


def build_engine(
    arm: ResolvedArm, config: RunConfig, target: LlamaModel, cache_memory: CacheMemory | None = None
) -> Engine:
    engine_config = EngineConfig(
        max_model_len=config.workload.max_model_len,
        max_num_seqs=config.max_concurrency,
        max_num_batched_tokens=config.max_num_batched_tokens,
        mixed_chunk_size=config.mixed_chunk_size or usual_mixed_chunk(target.config, arm.strategy.num_drafts),
        page_size=page_size_for(config, target.device),
        num_pages=config.num_pages,
        graph=arm.choices.plan,
        sync=arm.choices.sync,
        status_lag=arm.choices.status_lag or 0,
        drafter=arm.choices.drafter,
    )
    backends = {
        name: lookup(ATTENTION_BACKENDS, name, "attention")()
        for name in (arm.choices.attention, arm.choices.drafter_backend)
    }
    return Engine(
        engine_config,
        target,
        arm.strategy,
        backends[arm.choices.attention],
        arm.acceptance,
        ranges_named(config.ranges),
        drafter_backend=backends[arm.choices.drafter_backend],
        update=lookup(STATE_UPDATES, arm.choices.state_update, "state_update")(),
        cache_memory=cache_memory,
    )


def check_requests(engine: Engine, requests: Iterable[Request]) -> None:
    """Offers each request to an idle engine and withdraws it. Raises the engine's ValueError if it never fits."""
    for request in requests:
        engine.add(request)
        engine.abort(request.id)
        engine.step()
    assert not engine.has_work
