"""Loading what a run names: device, dtype, target model, tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .models.llama import LlamaModel
from .models.loader import dummy_target, load_target
from .models.shapes import published_shape
from .run_config import RunConfig


@dataclass(frozen=True, slots=True)
class Target:
    """A loaded target and where it came from. `tokenizer` is None for random weights."""

    model: LlamaModel
    tokenizer: Any
    eos_token_ids: tuple[int, ...]
    described: dict[str, Any]


def pick_device(name: str) -> torch.device:
    """Raises ValueError if a GPU was asked for and there is none."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: 'cuda' was asked for but torch sees no CUDA device; use --device cpu or fix the driver")
    return torch.device(name)


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the hardware multiplies it: any CUDA device, CPUs with AVX512-BF16 or AMX."""
    if name == "auto":
        fast = device.type == "cuda" or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        name = "bfloat16" if fast else "float32"
    return {"bfloat16": torch.bfloat16, "float32": torch.float32}[name]


def load(config: RunConfig, progress: Callable[[str, int, int], None] | None = None) -> Target:
    """Resolves, converts if need be, and loads the target. Raises ValueError naming what does not fit."""
    device = pick_device(config.device)
    dtype = pick_dtype(config.dtype, device)
    described: dict[str, Any] = {"name": config.model, "dtype": str(dtype).removeprefix("torch."), "device": str(device)}
    if config.load_format == "dummy":
        model = dummy_target(config.model, dtype, device, num_layers=config.num_layers)
        hub_name = published_shape(config.model).hub_name
        described |= {"source": f"random weights of the shape of {hub_name}", "sha256": "", "synthetic": True}
        described["num_layers"] = model.config.num_layers
        return Target(model, None, (), described)
    from specbench.workloads.tokenizer import load_tokenizer

    from .models.source import resolve_model  # the GGUF reader and the hub client, which random weights do not need

    source = resolve_model(config.model, progress=progress)
    tokenizer = load_tokenizer(source.path)
    model = load_target(source.path, dtype, device)
    described |= {"source": source.source, "sha256": source.sha256, "synthetic": False}
    described["num_layers"] = model.config.num_layers
    return Target(model, tokenizer, tokenizer.eos_ids or model.config.eos_token_ids, described)
