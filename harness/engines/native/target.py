"""Loads what a run names: target model and tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import psutil
import torch

from specbench.harness.engines.native.models.config import ModelConfig, read_config
from specbench.harness.engines.native.models.fp8_linear import multiplies_fp8
from specbench.harness.engines.native.models.group import ALONE, Group
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


def check_memory(shape: ModelConfig, dtype: torch.dtype, device: torch.device, name: str, num_ranks: int = 1) -> None:
    """Refuses weights that cannot fit, before the system starts to swap or kills the process. `num_ranks`: the number
    of ranks that share the model, each with its own GPU, or all with the machine's memory."""
    needed_bytes = _weight_bytes(shape, dtype, device) // (num_ranks if device.type == "cuda" else 1)
    on_gpu = device.type == "cuda"
    free_bytes = torch.cuda.mem_get_info(device)[0] if on_gpu else psutil.virtual_memory().available
    if needed_bytes > free_bytes:
        raise ValueError(
            f"model: {name} needs {needed_bytes / 1e9:.1f} GB for its weights in {str(dtype).removeprefix('torch.')}, "
            f"the {'GPU' if on_gpu else 'machine'} has {free_bytes / 1e9:.1f} GB free; use a smaller model, or fewer "
            "layers of random weights (--load-format dummy --num-layers N)"
        )


def _weight_bytes(shape: ModelConfig, dtype: torch.dtype, device: torch.device) -> int:
    """FP8 matrices stay one byte per number only if they are multiplied in FP8."""
    all_weights, in_layers = num_weights(shape), shape.num_layer_weights
    kept = shape.fp8 is not None and shape.fp8.activations != "none" and multiplies_fp8(device, dtype)
    return in_layers * (1 if kept else dtype.itemsize) + (all_weights - in_layers) * dtype.itemsize


def num_weights(shape: ModelConfig) -> int:
    """Elements of all matrices."""
    embeddings = 1 if shape.tie_word_embeddings else 2
    return shape.num_layer_weights + embeddings * shape.vocab_size * shape.hidden_size


def shape_of(config: RunConfig, progress: Callable[[str, int, int], None] | None = None) -> ModelConfig:
    """The shape of the model that `load` would load; resolves and converts its files."""
    if config.load_format == "dummy":
        return dummy_shape(config)
    from specbench.workloads.assets.model_source import resolve_model  # as in `load`

    return read_config(resolve_model(config.model, progress=progress).path)[0]


def dummy_shape(config: RunConfig) -> ModelConfig:
    shape = published_shape(config.model).config
    if config.num_layers is None:
        return shape
    if config.num_layers > shape.num_layers:
        raise ValueError(f"num_layers: {config.num_layers} is not allowed; {config.model} has {shape.num_layers}")
    return shape.with_layers(config.num_layers)


def load(config: RunConfig, progress: Callable[[str, int, int], None] | None = None, group: Group = ALONE) -> Target:
    """Resolves, converts if need be, and loads the target. Raises ValueError naming what does not fit."""
    device = pick_device(config.device)
    dtype = pick_dtype(config.dtype, device)
    described = ModelRecord(
        name=config.model,
        dtype=str(dtype).removeprefix("torch."),
        device=str(device),
        num_ranks=group.size if group.size > 1 else None,
    )
    if config.load_format == "dummy":
        check_memory(dummy_shape(config), dtype, device, config.model, group.size)
        model = dummy_target(config.model, dtype, device, num_layers=config.num_layers, group=group)
        hub_name = published_shape(config.model).hub_name
        source_text = f"random weights of the shape of {hub_name}"
        described = replace(
            described,
            source=source_text,
            sha256="",
            synthetic=True,
            num_layers=model.config.num_layers,
            arithmetic=model.arithmetic,
        )
        return Target(model, None, (), described)
    from specbench.workloads.assets.model_source import (
        resolve_model,  # the GGUF reader and the hub client, which random weights do not need
    )
    from specbench.workloads.tokenizer import load_tokenizer

    source = resolve_model(config.model, progress=progress)
    shape, _ = read_config(source.path)  # before transformers reads it, which has words of its own
    tokenizer = load_tokenizer(source.path)
    check_memory(shape, dtype, device, config.model, group.size)
    model = load_target(source.path, dtype, device, group)
    described = replace(
        described,
        source=source.source,
        sha256=source.sha256,
        synthetic=False,
        num_layers=model.config.num_layers,
        arithmetic=model.arithmetic,
    )
    return Target(model, tokenizer, tokenizer.eos_ids, described)
