"""The FP8 format of a checkpoint's matrices, from its config.json; every other quantizer is refused by name.

Two spellings: `quant_method: fp8` (Qwen, DeepSeek, AutoFP8) and `compressed-tensors` with `float-quantized` weights.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

from specbench.harness.engines.native.models.config_rules import (
    Empty,
    Harmless,
    ListOf,
    Nested,
    OneOf,
    Pattern,
    Rule,
    Whole,
    check_keys,
    flag_of,
    object_of,
    shown,
)
from specbench.workloads.json_values import Json, JsonObject

BLOCK = 128  # rows and columns of a weight under one scale
QUANTIZED_KEYS = ("quantization_config", "compression_config")  # the second: compressed-tensors before it was merged
_FP8, _COMPRESSED = "fp8", "compressed-tensors"
_ON, _OFF, _BLOCK_SIZE, _NAMES = OneOf((True,)), OneOf((False,)), ListOf(OneOf((BLOCK,))), ListOf(Pattern())

_FP8_KEYS: dict[str, Rule] = {
    "quant_method": OneOf((_FP8,)),
    "fmt": OneOf(("e4m3",)),
    "activation_scheme": OneOf(("dynamic", "static")),
    "weight_block_size": _BLOCK_SIZE,
    "modules_to_not_convert": _NAMES,
    "ignored_layers": _NAMES,
    "scale_fmt": OneOf(("float",)),
    "expert_dtype": OneOf(("fp8",)),
    "dequantize": _OFF,
}
_FLOAT8: dict[str, Rule] = {
    "num_bits": OneOf((8,)),
    "type": OneOf(("float",)),
    "symmetric": _ON,
    "block_structure": _BLOCK_SIZE,
    **dict.fromkeys(("observer", "observer_kwargs", "scale_dtype", "zp_dtype"), Harmless()),
}
_GROUP_KEYS: dict[str, Rule] = {
    "targets": ListOf(OneOf(("Linear",))),
    "weights": Nested({**_FLOAT8, "strategy": OneOf(("tensor", "channel", "block")), "dynamic": _OFF}),
    "input_activations": Nested(
        {
            **_FLOAT8,
            "strategy": OneOf(("tensor", "token", "group")),
            "dynamic": OneOf((False, True)),
            "group_size": Whole(BLOCK, BLOCK),
        }
    ),
    "format": OneOf(("float-quantized", "naive-quantized")),
}

_COMPRESSED_KEYS: dict[str, Rule] = {
    "quant_method": OneOf((_COMPRESSED,)),
    "format": OneOf(("float-quantized", "naive-quantized")),
    "config_groups": Nested({"group_0": Nested(_GROUP_KEYS)}),
    "ignore": _NAMES,
    "quantization_status": OneOf(("compressed", "frozen")),
    "sparsity_config": Empty(),
    "transform_config": Empty(),
    **dict.fromkeys(("global_compression_ratio", "version"), Harmless()),
}

Scales = Literal["tensor", "channel", "block"]
Activations = Literal["dynamic", "static", "none"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fp8Format:
    """E4M3 matrices. `scales`: the part of a weight with one scale: all of it, a row, or a 128x128 block.
    `activations`: quantized by their own maximum, by a scale of the checkpoint, or not at all. `unquantized`: modules
    stored unquantized, each a name, the first or last parts of one, or `re:` and a regular expression."""

    scales: Scales
    activations: Activations = "dynamic"
    unquantized: tuple[str, ...] = ()

    def covers(self, module: str) -> bool:
        return not any(_matches(name, module) for name in self.unquantized)

    @property
    def stored(self) -> str:
        """A description, for a record."""
        size = f"block {BLOCK}x{BLOCK}" if self.scales == "block" else f"per {self.scales}"
        return f"fp8 e4m3 {size}"


def _matches(name: str, module: str) -> bool:
    if name.startswith("re:"):
        return re.match(name.removeprefix("re:"), module) is not None
    return module == name or module.startswith(f"{name}.") or module.endswith(f".{name}")


def check_unquantized(raw: JsonObject, where: str) -> None:
    """For a head; no published head has FP8 weights."""
    for key in QUANTIZED_KEYS:
        if raw.get(key) is not None:
            raise _refusal(where, key, raw[key], "unquantized weights (float32, float16, bfloat16)")


def read_quantization(raw: JsonObject, where: str) -> Fp8Format | None:
    """The format of a target's weights from config.json; None: not quantized. ValueError naming the key."""
    for key in QUANTIZED_KEYS:
        found = raw.get(key)
        if found is None:
            continue
        method = found.get("quant_method") if isinstance(found, dict) else None
        if isinstance(found, dict) and method == _FP8:
            return _fp8(found, f"{where}: {key}")
        if isinstance(found, dict) and method == _COMPRESSED:
            return _compressed(found, f"{where}: {key}")
        allowed = (
            "unquantized weights (float32, float16, bfloat16), fp8, compressed-tensors (float-quantized), or a .gguf "
            "file, which is dequantized"
        )
        raise _refusal(where, key, found, allowed)
    return None


def _refusal(where: str, key: str, found: Json, allowed: str) -> ValueError:
    method = found.get("quant_method") if isinstance(found, dict) else found
    return ValueError(f"{where}: {key} with quant_method {method!r} is not supported; allowed: {allowed}")


def _names(raw: JsonObject, key: str) -> tuple[str, ...]:
    found = raw.get(key)
    return tuple(str(name) for name in found) if isinstance(found, list) else ()


def _check_block(size: Json, where: str) -> None:
    if size is not None and size != [BLOCK, BLOCK]:
        raise ValueError(f"{where} {shown(size)} is not supported; allowed: [{BLOCK}, {BLOCK}]")


def _fp8(raw: JsonObject, where: str) -> Fp8Format:
    check_keys(raw, _FP8_KEYS, where)
    size = raw.get("weight_block_size")
    _check_block(size, f"{where}: weight_block_size")
    activations: Activations = "static" if raw.get("activation_scheme") == "static" else "dynamic"
    if size is not None and activations == "static":
        raise ValueError(f"{where}: activation_scheme static is not supported with weight_block_size; allowed: dynamic")
    # This method leaves the output embedding alone, whether its lists name it or not.
    unquantized = ("lm_head", *_names(raw, "modules_to_not_convert"), *_names(raw, "ignored_layers"))
    return Fp8Format(
        scales="tensor" if size is None else "block", activations=activations, unquantized=tuple(unquantized)
    )


def _compressed(raw: JsonObject, where: str) -> Fp8Format:
    check_keys(raw, _COMPRESSED_KEYS, where)
    group = object_of(object_of(raw, "config_groups"), "group_0")
    weights, inputs = object_of(group, "weights"), object_of(group, "input_activations")
    for key in ("num_bits", "type", "strategy"):
        if weights.get(key) is None:
            raise ValueError(f"{where}: config_groups: group_0: weights has no {key}; is it complete?")
    for part in (weights, inputs):
        _check_block(part.get("block_structure"), f"{where}: config_groups: group_0: block_structure")
    scales = cast(Scales, weights["strategy"])
    activations: Activations = "dynamic" if flag_of(inputs, "dynamic") else "static"
    if not inputs:
        activations = "none"
    elif activations == "static" and inputs.get("strategy") != "tensor":
        raise ValueError(
            f"{where}: config_groups: group_0: input_activations with strategy {inputs.get('strategy')!r} and dynamic "
            "false is not supported; allowed: strategy tensor, or dynamic true"
        )
    return Fp8Format(scales=scales, activations=activations, unquantized=_names(raw, "ignore"))
