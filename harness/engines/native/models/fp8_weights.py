"""E4M3 matrices of a checkpoint with their scales, each checked; or random ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from specbench.harness.engines.native.models.fp8_linear import Fp8Matrix
from specbench.harness.engines.native.models.group import ALONE, Group
from specbench.harness.engines.native.models.quantization import BLOCK, Fp8Format
from specbench.harness.engines.native.models.weights import CheckpointWeights, RandomWeights, part_of
from specbench.kernels.fp8 import E4M3, LARGEST

_SCALES = ("weight_scale", "weight_scale_inv")  # both multiply; the second is DeepSeek's word
_INPUT_SCALES = ("input_scale", "activation_scale")  # the second is transformers' word
_SCALE_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _scale_shapes(shape: Sequence[int], fp8: Fp8Format) -> list[tuple[int, ...]]:
    outputs, inputs = shape
    if fp8.scales == "block":
        return [(-(-outputs // BLOCK), -(-inputs // BLOCK))]
    return [(), (1,)] if fp8.scales == "tensor" else [(outputs, 1), (outputs,)]


def _scales_of(part: tuple[slice, ...], scale: Tensor, fp8: Fp8Format) -> Tensor:
    """The scales of a part of a matrix, whole blocks of it; `scale`: of the whole matrix, by block or by row."""
    if not part:
        return scale
    outputs, inputs = part
    return scale[_blocks(outputs), _blocks(inputs)] if fp8.scales == "block" else scale[outputs]


def _blocks(part: slice) -> slice:
    return part if part.start is None else slice(part.start // BLOCK, part.stop // BLOCK)


class Fp8Checkpoint(CheckpointWeights):
    """A checkpoint whose modules are E4M3, except those that its config names."""

    def __init__(self, model_dir: Path, dtype: torch.dtype, device: torch.device, fp8: Fp8Format, group: Group = ALONE):
        super().__init__(model_dir, dtype, device, group)
        self.format = fp8

    def fp8(self, module: str, shape: Sequence[int], split: int | None = None) -> Fp8Matrix | None:
        """ValueError naming a tensor that is missing, of another shape or dtype, or not finite."""
        if not self.format.covers(module):
            return None
        part = part_of(f"{module}.weight", shape, split, self.group)
        weight_OI = self._weight(f"{module}.weight", shape, split)
        scale = self._scale(module, _SCALES, _scale_shapes(shape, self.format))
        if self.format.scales != "block":
            scale = scale.reshape(-1, 1).expand(shape[0], 1)
        static = self.format.activations == "static"
        input_scale = self._scale(module, _INPUT_SCALES, [(), (1,)]).reshape(()) if static else None
        return Fp8Matrix(weight_OI, _scales_of(part, scale, self.format).contiguous(), self.format, input_scale)

    def _weight(self, name: str, shape: Sequence[int], split: int | None) -> Tensor:
        weight = self.part(name, shape, split)
        if weight.dtype != E4M3:
            raise ValueError(
                f"checkpoint: {name} in {self.model_dir} is stored as {weight.dtype}, but config.json says "
                f"{self.format.stored}; allowed: {E4M3}, or its name among the modules that are not converted"
            )
        self.check_shape(name, shape)
        weight = weight.to(self.device).contiguous()
        if bool((weight.view(torch.uint8) & 0x7F == 0x7F).any()):  # E4M3 has no infinity
            raise ValueError(
                f"checkpoint: {name} in {self.model_dir} has values that are not finite; allowed: finite weights "
                "(fetch or copy it again)"
            )
        return weight

    def _scale(self, module: str, kinds: Sequence[str], shapes: list[tuple[int, ...]]) -> Tensor:
        """fp32; from the first of `kinds` that exists. A second one stays unread and is refused with the unused
        tensors."""
        name = next((f"{module}.{kind}" for kind in kinds if self.has(f"{module}.{kind}")), f"{module}.{kinds[0]}")
        scale = self.raw(name)
        if scale.dtype not in _SCALE_DTYPES:
            allowed = ", ".join(map(str, _SCALE_DTYPES))
            raise ValueError(f"checkpoint: {name} in {self.model_dir} is stored as {scale.dtype}; allowed: {allowed}")
        if tuple(scale.shape) not in shapes:
            raise ValueError(
                f"checkpoint: {name} in {self.model_dir} has shape {tuple(scale.shape)}, {self.format.stored} needs "
                f"{shapes[0]}"
            )
        scale = scale.float()
        if not bool(((scale * LARGEST).isfinite() & (scale > 0)).all()):
            raise ValueError(
                f"checkpoint: {name} in {self.model_dir} has scales that are not finite or not above 0; allowed: "
                "finite scales above 0 (fetch or copy it again)"
            )
        return scale.to(self.device)


class Fp8Random(RandomWeights):
    """Random E4M3 matrices, with the same spread as those of other dtypes."""

    def __init__(self, seed: int, dtype: torch.dtype, device: torch.device, fp8: Fp8Format, group: Group = ALONE):
        super().__init__(seed, dtype, device, group)
        self.format = fp8

    def fp8(self, module: str, shape: Sequence[int], split: int | None = None) -> Fp8Matrix | None:
        if not self.format.covers(module):
            return None
        wide_OI = self.get(f"{module}.weight", shape)
        scale = wide_OI.abs().max().float() / LARGEST
        scales = _scale_shapes(shape, self.format)[0] if self.format.scales == "block" else (shape[0], 1)
        part = part_of(f"{module}.weight", shape, split, self.group)
        weight_OI = (wide_OI / scale).to(E4M3)[part].contiguous()
        return Fp8Matrix(weight_OI, _scales_of(part, scale.expand(scales), self.format).contiguous(), self.format)
