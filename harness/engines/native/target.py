"""Loading what a run names: target model and tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import psutil
import torch

from specbench.harness.engines.native.models.config import ModelConfig, read_config
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.loader import dummy_target, load_target
from specbench.harness.engines.native.models.shapes import published_shape
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.spec.devices import pick_device, pick_dtype
from specbench.harness.store.inputs_record import ModelRecord


@dataclass(frozen=True, slots=True)
class Target:
    """A loaded target and where it came from. `tokenizer` is None for random weights."""

    model: LlamaModel
    tokenizer: Any
    eos_token_ids: tuple[int, ...]
    described: ModelRecord


def check_memory(shape: ModelConfig, dtype: torch.dtype, device: torch.device, name: str) -> None:
    """Refuses weights that cannot fit, before the system starts to swap or kills the process."""
    needed_bytes = num_weights(shape) * dtype.itemsize
    on_gpu = device.type == "cuda"
    free_bytes = torch.cuda.mem_get_info(device)[0] if on_gpu else psutil.virtual_memory().available
    if needed_bytes > free_bytes:
        raise ValueError(
            f"model: {name} needs {needed_bytes / 1e9:.1f} GB for its weights in {str(dtype).removeprefix('torch.')}, "
            f"the {'GPU' if on_gpu else 'machine'} has {free_bytes / 1e9:.1f} GB free; use a smaller model, or fewer "
            "layers of random weights (--load-format dummy --num-layers N)"
        )


def num_weights(shape: ModelConfig) -> int:
    """Elements of all matrices."""
    q, kv = shape.num_q_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    layer = shape.hidden_size * (2 * q + 2 * kv + 3 * shape.intermediate_size)
    embeddings = 1 if shape.tie_word_embeddings else 2
    return shape.num_layers * layer + embeddings * shape.vocab_size * shape.hidden_size


def _dummy_shape(config: RunConfig) -> ModelConfig:
    shape = published_shape(config.model).config
    if config.num_layers is None:
        return shape
    if config.num_layers > shape.num_layers:
        raise ValueError(f"num_layers: {config.num_layers} is not allowed; {config.model} has {shape.num_layers}")
    return shape.with_layers(config.num_layers)


def load(config: RunConfig, progress: Callable[[str, int, int], None] | None = None) -> Target:
    """Resolves, converts if need be, and loads the target. Raises ValueError naming what does not fit."""
    device = pick_device(config.device)
    dtype = pick_dtype(config.dtype, device)
    described = ModelRecord(name=config.model, dtype=str(dtype).removeprefix("torch."), device=str(device))
    if config.load_format == "dummy":
        check_memory(_dummy_shape(config), dtype, device, config.model)
        model = dummy_target(config.model, dtype, device, num_layers=config.num_layers)
        hub_name = published_shape(config.model).hub_name
        source_text = f"random weights of the shape of {hub_name}"
        described = replace(
            described, source=source_text, sha256="", synthetic=True, num_layers=model.config.num_layers
        )
        return Target(model, None, (), described)
    from specbench.workloads.assets.model_source import (
        resolve_model,  # the GGUF reader and the hub client, which random weights do not need
    )
    from specbench.workloads.tokenizer import load_tokenizer

    source = resolve_model(config.model, progress=progress)
    tokenizer = load_tokenizer(source.path)
    check_memory(read_config(source.path)[0], dtype, device, config.model)
    model = load_target(source.path, dtype, device)
    described = replace(
        described,
        source=source.source,
        sha256=source.sha256,
        synthetic=False,
        num_layers=model.config.num_layers,
    )
    return Target(model, tokenizer, tokenizer.eos_ids or model.config.eos_token_ids, described)
