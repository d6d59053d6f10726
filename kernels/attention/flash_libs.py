"""FlashAttention over paged keys from four libraries behind one call, and which of them this machine has.

Looked up in this order: flash-attn 3 (`flash_attn_interface`), vLLM's build of FlashAttention-3 (one shared library,
named by the environment's FA3_SO or found in an installed vLLM, which is not imported), flash-attn 2, and torch's own
(`torch.nn.attention.varlen`, with block tables since 2.12). Legend: T rows, B requests, Q rows of each, H heads, D head
dimension.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from specbench.kernels.attention.base import AttentionMetadata

_VLLM_LIBRARY = "vllm_flash_attn/_vllm_fa3_C.abi3.so"


@dataclass(frozen=True, slots=True)
class FlashCall:
    """One attention call, over rows whose keys are already stored."""

    q_THD: Tensor
    k_cache: Tensor
    v_cache: Tensor
    meta: AttentionMetadata
    scale: float
    num_splits: int
    """Splits of the keys, at most; 0 leaves it to the library."""
    out_THD: Tensor

    def rows_BQHD(self, rows_THD: Tensor) -> Tensor:
        """A uniform step's rows by request."""
        return rows_THD.unflatten(0, (self.meta.kv_len_B.shape[0], self.meta.max_q))


class FlashSource(Protocol):
    """One library's attention; its launch depends on shapes and on the metadata's host constants alone."""

    name: str
    page_multiple: int
    """Pages must hold a multiple of so many keys."""

    def run(self, call: FlashCall) -> None:
        """Writes the attention of all rows to `call.out_THD`."""
        ...


class UnusableSource(Exception):
    """Why a library cannot be used here."""


@dataclass(frozen=True, slots=True)
class FlashLookup:
    """The first library that can be used, and why those before it cannot ("name: reason")."""

    source: FlashSource | None
    refused: tuple[str, ...]


class FlashAttention3:
    """The package flash-attn 3 (Hopper)."""

    name = "flash-attn 3"
    page_multiple = 1

    def __init__(self) -> None:
        _require_capability(9)
        self._attend = _import("flash_attn_interface", "flash_attn_with_kvcache")

    def run(self, call: FlashCall) -> None:
        meta = call.meta
        out = self._attend(
            call.q_THD,
            call.k_cache,
            call.v_cache,
            cache_seqlens=meta.kv_len_B,
            page_table=meta.block_table_BP,
            cu_seqlens_q=meta.cu_q_B1,
            max_seqlen_q=meta.max_q,
            softmax_scale=call.scale,
            causal=True,
            num_splits=call.num_splits,
        )
        call.out_THD.copy_(out[0] if isinstance(out, tuple) else out)


class VllmFlashAttention3:
    """vLLM's build of FlashAttention-3 (Hopper): the operator `fwd` of its shared library, as vLLM 0.26 declares it."""

    name = "vLLM's FlashAttention-3"
    page_multiple = 1

    # What `run` gives, in this order.
    _GIVEN = (
        "q", "k", "v", "out", "cu_seqlens_q", "seqused_k", "max_seqlen_q", "max_seqlen_k", "page_table",
        "softmax_scale", "is_causal", "num_splits",
    )  # fmt: skip

    def __init__(self) -> None:
        _require_capability(9)
        path = vllm_library()
        try:
            torch.ops.load_library(str(path))
        except OSError as error:  # another torch's library, for one
            raise UnusableSource(f"{path} does not load: {error}") from error
        self._fwd = torch.ops._vllm_fa3_C.fwd.default
        arguments = {argument.name: argument for argument in self._fwd._schema.arguments}
        if missing := set(self._GIVEN) - arguments.keys():
            raise UnusableSource(f"{path}: its fwd has no argument {', '.join(sorted(missing))}")
        self._arguments: list[Any] = [self._neutral(argument) for argument in arguments.values()]
        self._places = [list(arguments).index(name) for name in self._GIVEN]

    def _neutral(self, argument: torch.Argument) -> float | None:
        """The value that an argument has if `run` leaves it alone."""
        neutral = dict(window_size_left=-1, window_size_right=-1, softcap=0.0, is_rotary_interleaved=True, sm_margin=0)
        neutral |= dict(cp_world_size=1, cp_rank=0)
        if argument.name in neutral or argument.name in self._GIVEN or argument.type.kind() == "OptionalType":
            return neutral.get(argument.name)
        if not argument.has_default_value():
            raise UnusableSource(f"its fwd needs an argument {argument.name}, which is not known")
        return argument.default_value

    def run(self, call: FlashCall) -> None:
        meta = call.meta
        given = (
            call.q_THD, call.k_cache, call.v_cache, call.out_THD, meta.cu_q_B1, meta.kv_len_B, meta.max_q, meta.max_kv,
            meta.block_table_BP, call.scale, True, call.num_splits,
        )  # fmt: skip
        arguments = self._arguments.copy()
        for place, value in zip(self._places, given, strict=True):
            arguments[place] = value
        self._fwd(*arguments)  # by place: the dispatcher takes 10 us to match 37 names


class FlashAttention2:
    """The package flash-attn 2, from 2.5 (paged keys)."""

    name = "flash-attn 2"
    page_multiple = 256

    def __init__(self) -> None:
        _require_capability(8)
        self._attend_uniform = _import("flash_attn", "flash_attn_with_kvcache")
        self._attend_ragged = _import("flash_attn", "flash_attn_varlen_func")
        if "block_table" not in inspect.signature(self._attend_uniform).parameters:
            raise UnusableSource("it has no paged keys; flash-attn 2.5 or later has")

    def run(self, call: FlashCall) -> None:
        meta = call.meta
        options = dict(block_table=meta.block_table_BP, softmax_scale=call.scale, causal=True)
        caches = (call.k_cache, call.v_cache)
        if meta.is_uniform:
            rows_BQHD = call.rows_BQHD(call.q_THD)
            out = self._attend_uniform(
                rows_BQHD, *caches, cache_seqlens=meta.kv_len_B, num_splits=call.num_splits, **options
            )
            call.rows_BQHD(call.out_THD).copy_(out)
            return
        cu_kv_B1 = torch.nn.functional.pad(meta.kv_len_B.cumsum(0, dtype=torch.int32), (1, 0))
        out = self._attend_ragged(call.q_THD, *caches, meta.cu_q_B1, cu_kv_B1, meta.max_q, meta.max_kv, **options)
        call.out_THD.copy_(out)


class TorchVarlen:
    """torch's own FlashAttention over ragged rows; block tables since torch 2.12."""

    name = "torch.nn.attention.varlen"
    page_multiple = 256

    def __init__(self) -> None:
        self._attend = _import("torch.nn.attention.varlen", "varlen_attn_out")
        if "block_table" not in inspect.signature(self._attend).parameters:
            raise UnusableSource(f"torch {torch.__version__} has no block tables there; 2.12 or later has")
        _require_capability(8)

    def run(self, call: FlashCall) -> None:
        meta = call.meta
        self._attend(
            call.out_THD,
            call.q_THD,
            call.k_cache,
            call.v_cache,
            meta.cu_q_B1,
            None,
            meta.max_q,
            meta.max_kv,
            scale=call.scale,
            window_size=(-1, 0),
            enable_gqa=True,
            seqused_k=meta.kv_len_B,
            block_table=meta.block_table_BP,
            num_splits=call.num_splits or None,
        )


SOURCES: tuple[type[FlashSource], ...] = (FlashAttention3, VllmFlashAttention3, FlashAttention2, TorchVarlen)


def find_flash_attention(sources: tuple[Callable[[], FlashSource], ...] = SOURCES) -> FlashLookup:
    """The first of the libraries that can be used here; loads it, so that its operators are known to exist."""
    refused: list[str] = []
    for make in sources:
        try:
            return FlashLookup(make(), tuple(refused))
        except UnusableSource as error:
            refused.append(f"{getattr(make, 'name', make)}: {error}")
    return FlashLookup(None, tuple(refused))


def vllm_library() -> Path:
    """The shared library of vLLM's FlashAttention-3. Raises UnusableSource with the places tried."""
    named = os.environ.get("FA3_SO")
    if named:
        if not Path(named).is_file():
            raise UnusableSource(f"FA3_SO names {named}, which is not a file")
        return Path(named)
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        raise UnusableSource("FA3_SO is not set and vLLM is not installed")
    path = Path(spec.submodule_search_locations[0]) / _VLLM_LIBRARY
    if not path.is_file():
        raise UnusableSource(f"the installed vLLM has no {_VLLM_LIBRARY}")
    return path


def _import(module: str, name: str) -> Callable[..., Tensor]:
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise UnusableSource(f"{module} is not installed or does not load ({error})") from error
    except AttributeError as error:
        raise UnusableSource(f"{module} has no {name}") from error


def _require_capability(major: int) -> None:
    """FlashAttention-3 is for Hopper alone (9); the others need Ampere (8) or later."""
    if not torch.cuda.is_available():
        raise UnusableSource("no CUDA device")
    found = torch.cuda.get_device_capability()[0]
    if found < major or (major == 9 and found != 9):
        raise UnusableSource(f"compute capability {found}.x; needs {major}.x{'' if major == 9 else ' or later'}")
