"""The device and the dtype of a run."""

from __future__ import annotations

import torch


def pick_device(name: str) -> torch.device:
    """Raises ValueError if a GPU was requested and there is none."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "device: 'cuda' was requested but torch sees no CUDA device; use --device cpu or fix the driver"
        )
    return torch.device(name)


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 if the hardware multiplies it natively: any CUDA device, CPUs with AVX512-BF16 or AMX."""
    if name == "auto":
        fast = device.type == "cuda" or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        name = "bfloat16" if fast else "float32"
    return {"bfloat16": torch.bfloat16, "float32": torch.float32}[name]
