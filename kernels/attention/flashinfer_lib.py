"""The FlashInfer of this machine, and the inputs that its kernels support.

FlashInfer compiles a module for each kind of kernel with nvcc at its first use. Where FLASHINFER_DISABLE_JIT is set,
only prebuilt modules exist; the usual set has head dimensions 64 and 128.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
from types import ModuleType

import torch

PREBUILT_HEAD_DIMS = (64, 128)
HEAD_DIMS = (64, 128, 256)
DTYPES = (torch.float16, torch.bfloat16)
_NO_JIT = "FLASHINFER_DISABLE_JIT"


def flashinfer_missing() -> str | None:
    """Why FlashInfer cannot be used here, or None where it can; nothing of it is imported."""
    if importlib.util.find_spec("flashinfer") is None:
        return "flashinfer-python is not installed"
    if not torch.cuda.is_available():
        return "no CUDA device"
    return None


def xqa_missing() -> str | None:
    """Why FlashInfer's XQA kernels cannot be used here, or None where they can."""
    missing = flashinfer_missing()
    if missing:
        return missing
    major = torch.cuda.get_device_capability()[0]
    if major not in (9, 10, 12):
        return f"compute capability {major}.x; XQA needs 9.x, 10.x or 12.x"
    if is_jit_disabled():
        return f"{_NO_JIT} is set, and XQA kernels are not prebuilt"
    if (
        shutil.which("nvcc") is None
        and not os.path.exists("/usr/local/cuda/bin/nvcc")
        and "CUDA_HOME" not in os.environ
    ):
        return "nvcc was not found, and XQA kernels are compiled at their first use"
    return None


def require(missing: str | None, backend: str) -> None:
    """ValueError with the reason when a backend cannot be used here."""
    if missing:
        raise ValueError(f"attention: {backend} cannot be used here: {missing}")


def is_jit_disabled() -> bool:
    """Whether only prebuilt modules may be used."""
    return bool(os.environ.get(_NO_JIT))


def check_head_dim(head_dim: int) -> None:
    """ValueError for a head dimension that the prefill and decode kernels do not have here."""
    allowed = PREBUILT_HEAD_DIMS if is_jit_disabled() else HEAD_DIMS
    if head_dim not in allowed:
        why = f" ({_NO_JIT} is set: prebuilt kernels only)" if is_jit_disabled() else ""
        raise ValueError(f"head_dim: {head_dim}; allowed with flashinfer{why}: {', '.join(map(str, allowed))}")


def check_dtype(dtype: torch.dtype) -> None:
    """ValueError for a type that the kernels do not have."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype: {dtype}; allowed with flashinfer: float16, bfloat16")


def load(module: str) -> ModuleType:
    """A module of FlashInfer, imported at its first use."""
    return importlib.import_module(f"flashinfer.{module}")
