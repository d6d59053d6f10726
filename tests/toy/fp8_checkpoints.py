"""FP8 copies of a checkpoint in every published form, each with its dequantized twin, written tensor by tensor."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

Tensors = dict[str, Tensor]
E4M3 = torch.float8_e4m3fn


def _group(strategy: str, activations: dict[str, Any] | None, **weights: Any) -> dict[str, Any]:
    eight = {"num_bits": 8, "type": "float", "symmetric": True}
    return {
        "group_0": {
            "targets": ["Linear"],
            "weights": {**eight, "strategy": strategy, "dynamic": False, "observer": "minmax", **weights},
            "input_activations": None if activations is None else {**eight, **activations},
            "output_activations": None,
        }
    }


def compressed(strategy: str, activations: dict[str, Any] | None, **weights: Any) -> dict[str, Any]:
    """A quantization_config as compressed-tensors writes it."""
    return {
        "quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
        "config_groups": _group(strategy, activations, **weights), "ignore": ["lm_head"], "kv_cache_scheme": None,
        "global_compression_ratio": 1.5, "version": "0.9.4",
    }  # fmt: skip


QWEN = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
TOKEN = {"strategy": "token", "dynamic": True}


@dataclass(frozen=True, kw_only=True)
class Form:
    """`scales` of a matrix: tensor, channel or block; `scale_name` as the form spells it; `static`: input scales."""

    config: dict[str, Any]
    scales: str
    scale_name: str = "weight_scale"
    static: str = ""
    dtype: torch.dtype = torch.float32


FORMS = {
    "qwen-block": Form(config=QWEN, scales="block", scale_name="weight_scale_inv"),
    "qwen-block-bf16-scales": Form(
        config=QWEN, scales="block", scale_name="weight_scale_inv", dtype=torch.bfloat16
    ),
    "fp8-tensor": Form(config={"quant_method": "fp8", "activation_scheme": "dynamic"}, scales="tensor"),
    "fp8-tensor-static": Form(
        config={"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]},
        scales="tensor", static="input_scale",
    ),
    "compressed-tensor-static": Form(
        config=compressed("tensor", {"strategy": "tensor", "dynamic": False}), scales="tensor", static="input_scale"
    ),
    "compressed-channel": Form(config=compressed("channel", TOKEN), scales="channel", dtype=torch.bfloat16),
    "compressed-block": Form(
        config=compressed(
            "block", {"strategy": "group", "group_size": 128, "dynamic": True}, block_structure=[128, 128]
        ),
        scales="block",
    ),
    "compressed-weights-alone": Form(config=compressed("channel", None), scales="channel"),
}  # fmt: skip


def _largest(weight: Tensor, scales: str) -> Tensor:
    if scales == "tensor":
        return weight.abs().max().view(1)
    if scales == "channel":
        return weight.abs().amax(1, keepdim=True)
    rows = [torch.stack([block.abs().max() for block in part.split(128, 1)]) for part in weight.split(128, 0)]
    return torch.stack(rows)


def quantized(weight: Tensor, form: Form) -> tuple[Tensor, Tensor, Tensor]:
    """E4M3, the scale as it is stored, and what both mean in fp32."""
    scale = (_largest(weight, form.scales) / 448).to(form.dtype)
    wide = scale.float()
    if form.scales == "block":
        wide = wide.repeat_interleave(128, 0).repeat_interleave(128, 1)[: weight.shape[0], : weight.shape[1]]
    small = (weight / wide).to(E4M3)
    return small, scale, small.float() * wide


def write_fp8(
    source: Path,
    folder: Path,
    form: Form,
    skipped: tuple[str, ...] = (),
    change: Callable[[Tensors], None] | None = None,
) -> Path:
    """An FP8 copy of `source` at `folder`/fp8 and its dequantized twin at `folder`/plain. Modules that end in one of
    `skipped` stay as they are, and the config says so."""
    tensors, small, plain = load_file(source / "model.safetensors"), {}, {}
    for name, tensor in tensors.items():
        module, _, kind = name.rpartition(".")
        is_product = module.endswith("_proj") and kind == "weight" and not module.endswith(skipped or "none")
        if not is_product:
            small[name] = plain[name] = tensor
            continue
        small[name], small[f"{module}.{form.scale_name}"], plain[name] = quantized(tensor, form)
        if form.static:
            small[f"{module}.{form.static}"] = torch.tensor(0.05)
    if change:
        change(small)
    raw = json.loads((source / "config.json").read_text())
    quantization = dict(form.config)
    if skipped:
        key = "ignore" if quantization["quant_method"] == "compressed-tensors" else "modules_to_not_convert"
        quantization[key] = [*quantization.get(key, ()), *_named(tensors, skipped, key)]
    for name, content, config in (("fp8", small, {**raw, "quantization_config": quantization}), ("plain", plain, raw)):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(json.dumps(config))
        save_file({key: value.contiguous() for key, value in content.items()}, folder / name / "model.safetensors")
    return folder


def _named(tensors: Tensors, skipped: tuple[str, ...], key: str) -> list[str]:
    if key == "ignore":
        return [rf"re:.*{end.replace('.', chr(92) + '.')}$" for end in skipped]
    return [name.removesuffix(".weight") for name in tensors if name.removesuffix(".weight").endswith(skipped)]
