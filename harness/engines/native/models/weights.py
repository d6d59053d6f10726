"""Where tensors come from: checkpoint files or a seeded generator, behind one lookup."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

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
_MAX_NAMES = 5


class WeightSource(Protocol):
    """Tensors by checkpoint name."""

    def get(self, name: str, shape: Sequence[int]) -> Tensor:
        """The tensor on the source's device and dtype; ValueError if missing or of another shape."""
        ...

    def has(self, name: str) -> bool: ...


def _load_pickle(path: Path) -> dict[str, Tensor]:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        # Not torch's own words: they advise loading an untrusted pickle.
        raise ValueError(f"checkpoint: {path} is corrupt, truncated or no state dict; fetch it again") from error


def _safetensors_files(model_dir: Path) -> list[Path]:
    """Those that transformers reads: what the index names, else `model.safetensors`, else all. Repositories may keep
    other copies of the weights beside them (`consolidated.safetensors`)."""
    index, whole = model_dir / "model.safetensors.index.json", model_dir / "model.safetensors"
    if not index.is_file():
        return [whole] if whole.is_file() else sorted(model_dir.glob("*.safetensors"))
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"checkpoint: {index} is damaged ({error}); fetch it again") from error
    if missing := [name for name in names if name != Path(str(name)).name or not (model_dir / name).is_file()]:
        raise ValueError(
            f"checkpoint: {index} names {missing[0]!r}, which is not a file of {model_dir}; fetch it again"
        )
    return [model_dir / name for name in names]


class CheckpointWeights:
    """safetensors (one or many files) or an older `pytorch_model.bin`, read tensor by tensor."""

    def __init__(self, model_dir: Path, dtype: torch.dtype, device: torch.device):
        self.model_dir = model_dir
        self.dtype = dtype
        self.device = device
        self._files: dict[str, Path] = {}
        self._tensors: dict[str, Tensor] = {}
        self._read: set[str] = set()
        for path in _safetensors_files(model_dir):
            try:
                with safe_open(path, framework="pt") as handle:
                    self._files.update(dict.fromkeys(handle.keys(), path))
            except SafetensorError as error:
                raise ValueError(
                    f"checkpoint: {path} is not a complete safetensors file ({error}); fetch or copy it again"
                ) from error
        if not self._files:
            for path in sorted(model_dir.glob("pytorch_model*.bin")):
                self._tensors.update(_load_pickle(path))
        if not self._files and not self._tensors:
            raise ValueError(f"checkpoint: {model_dir} holds neither *.safetensors nor pytorch_model*.bin")

    def names(self) -> list[str]:
        return [*self._files, *self._tensors]

    def has(self, name: str) -> bool:
        return name in self._files or name in self._tensors

    def raw(self, name: str) -> Tensor:
        """The tensor as stored, on the CPU."""
        self._read.add(name)
        if name in self._tensors:
            return self._tensors[name]
        if name not in self._files:
            raise ValueError(f"checkpoint: {self.model_dir} has no tensor {name!r}")
        with safe_open(self._files[name], framework="pt") as handle:
            return handle.get_tensor(name)

    def shape(self, name: str) -> tuple[int, ...]:
        if name in self._tensors:
            return tuple(self._tensors[name].shape)
        with safe_open(self._files[name], framework="pt") as handle:
            return tuple(handle.get_slice(name).get_shape())

    def get(self, name: str, shape: Sequence[int]) -> Tensor:
        tensor = self.raw(name)
        if tuple(tensor.shape) != tuple(shape):
            raise ValueError(
                f"checkpoint: {name} in {self.model_dir} has shape {tuple(tensor.shape)}, the config needs "
                f"{tuple(shape)}"
            )
        if not tensor.is_floating_point() or tensor.itemsize < 2:
            raise ValueError(
                f"checkpoint: {name} in {self.model_dir} is stored as {tensor.dtype}, which needs scales; "
                "allowed: float16, bfloat16, float32, float64"
            )
        return tensor.to(device=self.device, dtype=self.dtype)

    def check_all_read(self, unread: Mapping[str, str] = UNREAD) -> None:
        """Raises ValueError naming tensors that were never read: the model would run without a part of itself."""
        known = tuple(f".{name}" for name in unread)
        left = sorted(name for name in self.names() if name not in self._read and not f".{name}".endswith(known))
        if left:
            more = f" and {len(left) - _MAX_NAMES} more" if len(left) > _MAX_NAMES else ""
            raise ValueError(
                f"checkpoint: {self.model_dir} holds tensors that this model does not use ({len(left)}): "
                f"{', '.join(left[:_MAX_NAMES])}{more}; allowed unused: {', '.join(unread)}"
            )


def checkpoint_shapes(model_dir: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a checkpoint's tensors; safetensors are not read for it, only their headers."""
    source = CheckpointWeights(model_dir, torch.float32, torch.device("cpu"))
    return {name: source.shape(name) for name in source.names()}


class RandomWeights:
    """Seeded random tensors of the asked shape: norms are ones, matrices keep the variance of their input."""

    def __init__(self, seed: int, dtype: torch.dtype, device: torch.device):
        self.dtype = dtype
        self.device = device
        self._generator = torch.Generator(device=device).manual_seed(seed)

    def has(self, name: str) -> bool:
        return name != "embed_tokens.weight"  # a random head shares the target's

    def get(self, name: str, shape: Sequence[int]) -> Tensor:
        if len(shape) == 1 and name.endswith("weight"):
            return torch.ones(*shape, dtype=self.dtype, device=self.device)
        tensor = torch.empty(*shape, dtype=self.dtype, device=self.device)
        std = 0.02 if len(shape) == 1 or name.endswith("embed_tokens.weight") else 1.0 / math.sqrt(shape[-1])
        return tensor.normal_(0.0, std, generator=self._generator)
