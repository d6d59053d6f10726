"""The source of tensors: checkpoint files or a seeded generator, behind one lookup."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specbench.harness.engines.native.models.fp8_linear import Fp8Matrix
from specbench.harness.engines.native.models.group import ALONE, Group
from specbench.workloads.assets.weight_files import pickle_files, safetensors_files

# Tensors that may stay unread, by the last parts of their names, and why nothing is lost without them.
UNREAD = {
    "rotary_emb.inv_freq": "a buffer of older transformers, computed from rope_theta and rope_scaling of config.json",
    "t2d": "which target ids a head's reduced vocabulary holds, for training; drafting maps by d2t alone",
}
UNREAD_EAGLE1 = {
    **UNREAD,
    "embed_tokens.weight": "a copy of the target's, which is used",
    "lm_head.weight": "a copy of the target's, which is used unless the head's vocabulary is reduced",
}
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_ALLOWED = "float16, bfloat16, float32, float64"
_BITS = {2: (torch.int16, np.uint16), 4: (torch.int32, np.uint32), 8: (torch.int64, np.uint64)}  # by bytes of a value
_PLAIN = ("weight", "bias")  # what a layer that is not quantized has
_MAX_NAMES = 5


class WeightSource(Protocol):
    """Tensors by checkpoint name, on one device, for one rank of `group`; `dtype` is that of the run."""

    dtype: torch.dtype
    group: Group

    def get(self, name: str, shape: Sequence[int], split: int | None = None) -> Tensor:
        """The tensor on the source's device and dtype, or this rank's part of it along dimension `split`; ValueError if
        missing or of another shape than `shape`, the whole one."""
        ...

    def has(self, name: str) -> bool: ...

    def fp8(self, module: str, shape: Sequence[int], split: int | None = None) -> Fp8Matrix | None:
        """The module's weight, or this rank's part of it, if it is stored that way; None: use `get`."""
        ...


def _load_pickle(path: Path) -> dict[str, Tensor]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # an unpickler stumbles over damaged or hostile files in any way
        # Not torch's own words: they advise loading an untrusted pickle.
        raise ValueError(f"checkpoint: {path} is corrupt, truncated or no state dict; fetch it again") from error
    entries = state.items() if isinstance(state, dict) else [("the file", state)]
    for name, value in entries:
        if not isinstance(state, dict) or not isinstance(name, str) or not isinstance(value, Tensor):
            raise ValueError(
                f"checkpoint: {path} is not a state dict: {str(name)[:80]!r} is {type(value).__name__}; allowed: "
                "tensors by name"
            )
    return state


class CheckpointWeights:
    """safetensors (one or many files) or an older `pytorch_model.bin`, read tensor by tensor."""

    def __init__(self, model_dir: Path, dtype: torch.dtype, device: torch.device, group: Group = ALONE):
        self.group = group
        self.model_dir = model_dir
        self.dtype = dtype
        self.device = device
        self._files: dict[str, Path] = {}
        self._tensors: dict[str, Tensor] = {}
        self._read: set[str] = set()
        self._open: tuple[Path, safe_open] | None = None
        for path in safetensors_files(model_dir):
            try:
                with safe_open(path, framework="pt") as handle:
                    names = list(handle.keys())
            except SafetensorError as error:
                raise ValueError(
                    f"checkpoint: {path} is not a complete safetensors file ({error}); fetch or copy it again"
                ) from error
            self._check_new(names, path)
            self._files.update(dict.fromkeys(names, path))
        if not self._files:
            for path in pickle_files(model_dir):
                tensors = _load_pickle(path)
                self._check_new(tensors, path)
                self._tensors.update(tensors)
        if not self._files and not self._tensors:
            raise ValueError(f"checkpoint: {model_dir} holds neither *.safetensors nor pytorch_model*.bin")

    def _check_new(self, names: Iterable[str], path: Path) -> None:
        if twice := [name for name in names if self.has(name)]:
            raise ValueError(f"checkpoint: {twice[0]} is in {path} and in another file of the checkpoint; keep one")

    def names(self) -> list[str]:
        return [*self._files, *self._tensors]

    def has(self, name: str) -> bool:
        return name in self._files or name in self._tensors

    def raw(self, name: str, part: tuple[slice, ...] = ()) -> Tensor:
        """The tensor as stored, on the CPU; from safetensors, only the `part` is read."""
        self._read.add(name)
        if name in self._tensors:
            return self._tensors[name][part].clone() if part else self._tensors[name]
        if name not in self._files:
            raise ValueError(f"checkpoint: {self.model_dir} has no tensor {name!r}{self._instead(name)}")
        handle = self._handle(self._files[name])
        return handle.get_slice(name)[part] if part else handle.get_tensor(name)

    def _handle(self, path: Path) -> safe_open:
        """Keeps the last open file: a shard has thousands of tensors, and at most one shard's pages stay mapped."""
        if self._open is None or self._open[0] != path:
            self._open = path, safe_open(path, framework="pt")
        return self._open[1]

    def shape(self, name: str) -> tuple[int, ...]:
        if name in self._tensors:
            return tuple(self._tensors[name].shape)
        return tuple(self._handle(self._files[name]).get_slice(name).get_shape())

    def fp8(self, module: str, shape: Sequence[int], split: int | None = None) -> Fp8Matrix | None:
        return None

    def _instead(self, name: str) -> str:
        """How a quantized checkpoint stores the matrix `name`, for the error about the missing tensor."""
        module, _, kind = name.rpartition(".")
        others = [n for n in self.names() if n.startswith(f"{module}.") and n.rpartition(".")[2] not in _PLAIN]
        if kind != "weight" or not others:
            return ""
        return (
            f" but {', '.join(sorted(others)[:_MAX_NAMES])}: quantized weights are not supported; allowed: {_ALLOWED}"
        )

    def part(self, name: str, shape: Sequence[int], split: int | None) -> Tensor:
        """As stored, on the CPU; of a tensor of another shape, which has no such part, all of it (`check_shape`)."""
        part = part_of(name, shape, split, self.group)
        return self.raw(name, part if self.has(name) and self.shape(name) == tuple(shape) else ())

    def check_shape(self, name: str, shape: Sequence[int]) -> None:
        """ValueError for a stored tensor of another shape."""
        if self.shape(name) != tuple(shape):
            raise ValueError(
                f"checkpoint: {name} in {self.model_dir} has shape {self.shape(name)}, the config needs {tuple(shape)}"
            )

    def get(self, name: str, shape: Sequence[int], split: int | None = None) -> Tensor:
        tensor = self.part(name, shape, split)
        if tensor.dtype not in _DTYPES or tensor.layout is not torch.strided:
            how = "which needs scales" if tensor.layout is torch.strided else f"{tensor.layout}"
            raise ValueError(
                f"checkpoint: {name} in {self.model_dir} is stored as {tensor.dtype}, {how}; allowed: {_ALLOWED}"
            )
        self.check_shape(name, shape)
        loaded = tensor.to(device=self.device, dtype=self.dtype)
        if not _is_finite(loaded):
            raise ValueError(
                f"checkpoint: {name} in {self.model_dir} has values that are not finite in {self.dtype}; allowed: "
                "finite weights (fetch or copy it again)"
            )
        return loaded

    def check_all_read(self, unread: Mapping[str, str] = UNREAD) -> None:
        """Raises ValueError naming tensors that were never read: the model would run without a part of its weights."""
        known = tuple(f".{name}" for name in unread)
        left = sorted(name for name in self.names() if name not in self._read and not f".{name}".endswith(known))
        if left:
            more = f" and {len(left) - _MAX_NAMES} more" if len(left) > _MAX_NAMES else ""
            raise ValueError(
                f"checkpoint: {self.model_dir} holds tensors that this model does not use ({len(left)}): "
                f"{', '.join(left[:_MAX_NAMES])}{more}; allowed unused: {', '.join(unread)}"
            )


def part_of(name: str, shape: Sequence[int], split: int | None, group: Group) -> tuple[slice, ...]:
    """A rank's part of a split tensor; without a rank, all of it. ValueError if it cannot be split."""
    if split is None or group.size == 1:
        return ()
    if shape[split] % group.size:
        raise ValueError(
            f"tensor_parallel_size: {group.size} is not allowed; {name} has shape {tuple(shape)}; allowed: a divisor "
            f"of {shape[split]}"
        )
    return tuple(group.share(length) if dim == split else slice(None) for dim, length in enumerate(shape))


def _is_finite(tensor: Tensor) -> bool:
    """On a CPU, compares bits, which grow with the magnitude: numpy's maximum is one pass at memory speed, while a
    torch reduction would wait for all its threads for each of hundreds of tensors."""
    if tensor.device.type != "cpu":  # a finite sum has finite terms; finite terms may still overflow it
        return bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())
    signed, unsigned = _BITS[tensor.itemsize]
    infinite = int(torch.tensor(math.inf, dtype=tensor.dtype).view(signed))
    bits = tensor.flatten().view(signed).numpy()
    negative_infinite = infinite - np.iinfo(bits.dtype).min
    return bool(bits.max() < infinite and bits.view(unsigned).max() < negative_infinite)


def checkpoint_shapes(model_dir: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a checkpoint's tensors; for safetensors, only the headers are read."""
    source = CheckpointWeights(model_dir, torch.float32, torch.device("cpu"))
    return {name: source.shape(name) for name in source.names()}


class RandomWeights:
    """Seeded random tensors of the requested shape: norms are ones, matrices keep the variance of their input.

    Every rank draws all numbers of a matrix and keeps its own part, so the model does not depend on the group.
    """

    def __init__(self, seed: int, dtype: torch.dtype, device: torch.device, group: Group = ALONE):
        self.group = group
        self.dtype = dtype
        self.device = device
        self._generator = torch.Generator(device=device).manual_seed(seed)

    def fp8(self, module: str, shape: Sequence[int], split: int | None = None) -> Fp8Matrix | None:
        return None

    def has(self, name: str) -> bool:
        return name != "embed_tokens.weight"  # a random head shares the target's

    def get(self, name: str, shape: Sequence[int], split: int | None = None) -> Tensor:
        part = part_of(name, shape, split, self.group)
        if len(shape) == 1 and name.endswith("weight"):
            return torch.ones(*shape, dtype=self.dtype, device=self.device)
        tensor = torch.empty(*shape, dtype=self.dtype, device=self.device)
        std = 0.02 if len(shape) == 1 or name.endswith("embed_tokens.weight") else 1.0 / math.sqrt(shape[-1])
        tensor.normal_(0.0, std, generator=self._generator)
        return tensor[part].clone() if part else tensor
