"""What vLLM reports about itself once it is up, read from its resolved configuration. Runs in the child."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from specbench.harness.engines.child.wire import Facts

_SPECULATIVE = (
    *("method", "model", "num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max"),
    *("disable_padded_drafter_batch", "parallel_drafting", "draft_sample_method", "rejection_sample_method"),
    *("synthetic_acceptance_length", "synthetic_acceptance_rates", "attention_backend"),
)


class ModelConfig(Protocol):
    """`dtype`: of torch."""

    dtype: object
    max_model_len: int
    enforce_eager: bool


class SchedulerConfig(Protocol):
    max_num_seqs: int
    max_num_batched_tokens: int
    async_scheduling: bool | None


class CacheConfig(Protocol):
    block_size: int
    num_gpu_blocks: int | None
    gpu_memory_utilization: float
    enable_prefix_caching: bool | None


class CompilationConfig(Protocol):
    cudagraph_mode: Enum | None
    cudagraph_capture_sizes: Sequence[int] | None


class ParallelConfig(Protocol):
    tensor_parallel_size: int
    pipeline_parallel_size: int


class LoadConfig(Protocol):
    load_format: object


class VllmConfig(Protocol):
    """The attributes used in every version; others are looked up by name."""

    model_config: ModelConfig
    scheduler_config: SchedulerConfig
    cache_config: CacheConfig
    compilation_config: CompilationConfig
    parallel_config: ParallelConfig
    load_config: LoadConfig
    speculative_config: object | None


class Engine(Protocol):
    """Of vLLM's `LLMEngine`."""

    vllm_config: VllmConfig
    model_executor: object


def facts(engine: Engine) -> Facts:
    import vllm

    config = engine.vllm_config
    return {
        "version": vllm.__version__,
        "graph_mode": graph_mode(engine).lower(),
        "backend": backend(engine),
        "hardware": hardware(),
        "config": resolved(config),
        "notes": [],
    }


def graph_mode(engine: Engine) -> str:
    mode = engine.vllm_config.compilation_config.cudagraph_mode
    return "NONE" if mode is None else str(mode.name)


def one_graph(engine: Engine) -> str | None:
    """How the target runs in every step, if that cannot vary."""
    return "none" if graph_mode(engine) == "NONE" else None


def backend(engine: Engine) -> str | None:
    """The target's attention backend; several names if layers differ. None if workers are separate processes."""
    worker = getattr(engine.model_executor, "driver_worker", None)
    groups = [] if worker is None else getattr(worker.model_runner, "attn_groups", None) or []
    names = [group.backend.get_name() for of_cache in groups for group in of_cache]
    return "+".join(dict.fromkeys(names)) or None


def hardware() -> str:
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        return f"cpu ({platform.machine()})"
    return str(current_platform.get_device_name())


def resolved(config: VllmConfig) -> dict[str, object]:
    """The configuration that determines how it runs, as JSON."""
    scheduler, cache, compilation = config.scheduler_config, config.cache_config, config.compilation_config
    found = {
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "max_model_len": config.model_config.max_model_len,
        "enforce_eager": config.model_config.enforce_eager,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "async_scheduling": bool(scheduler.async_scheduling),
        "model_runner": "v2" if getattr(config, "use_v2_model_runner", False) else "v1",
        "block_size": cache.block_size,
        "num_gpu_blocks": cache.num_gpu_blocks,
        "gpu_memory_utilization": cache.gpu_memory_utilization,
        "enable_prefix_caching": bool(cache.enable_prefix_caching),
        "compilation_mode": getattr(getattr(compilation, "mode", None), "name", None),
        "cudagraph_mode": getattr(compilation.cudagraph_mode, "name", None),
        "cudagraph_capture_sizes": list(compilation.cudagraph_capture_sizes or []),
        "tensor_parallel_size": config.parallel_config.tensor_parallel_size,
        "pipeline_parallel_size": config.parallel_config.pipeline_parallel_size,
        "load_format": str(config.load_config.load_format),
    }
    return {**found, "speculative_config": _speculative(config.speculative_config)}


def _speculative(config: object | None) -> dict[str, object] | None:
    if config is None:
        return None
    values = {name: getattr(config, name, None) for name in _SPECULATIVE}
    return {name: _plain(value) for name, value in values.items() if value is not None}


def _plain(value: object) -> object:
    return value if isinstance(value, (bool, int, float, str, list)) else getattr(value, "name", str(value))
