"""Model shapes: what a Hugging Face `config.json` says, in the engine's own words."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_REQUIRED_KEYS = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


@dataclass(frozen=True, kw_only=True, slots=True)
class RopeScaling:
    """Llama-3.1's frequency scaling (`rope_type: llama3` in transformers' modeling_rope_utils)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """A decoder-only transformer of the Llama family (Llama, Qwen2) or the single layer of an EAGLE head."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    max_position: int = 8192
    tie_word_embeddings: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    eos_token_ids: tuple[int, ...] = ()

    @property
    def aux_layers(self) -> tuple[int, int, int]:
        """Layers whose *input* (the un-normed residual stream) feeds an EAGLE-3 head.

        The reference implementation (SafeAILab/EAGLE modeling_llama_kv.py) and vLLM take the stream entering layers
        2, N//2 and N-3; transformers' `hidden_states[i]` is the same state.
        """
        n = self.num_layers
        if n < 5:  # toy models: three layers as far apart as there are
            return (min(1, n - 1), n // 2, n - 1)
        return (2, n // 2, n - 3)

    def with_layers(self, num_layers: int) -> ModelConfig:
        return replace(self, num_layers=num_layers)


def _rope(raw: dict[str, Any]) -> tuple[float, RopeScaling | None]:
    """Both spellings: `rope_theta`/`rope_scaling` (hub files) and `rope_parameters` (transformers 5)."""
    params = raw.get("rope_parameters") or {}
    theta = float(params.get("rope_theta", raw.get("rope_theta", 10000.0)))
    scaling = raw.get("rope_scaling") or params
    kind = scaling.get("rope_type", scaling.get("type", "default")) if scaling else "default"
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise ValueError(f"config.json: rope_scaling type {kind!r} is not supported; allowed: default, llama3")
    return theta, RopeScaling(
        factor=float(scaling["factor"]),
        low_freq_factor=float(scaling["low_freq_factor"]),
        high_freq_factor=float(scaling["high_freq_factor"]),
        original_max_position=int(scaling["original_max_position_embeddings"]),
    )


def _eos_ids(raw: dict[str, Any], model_dir: Path) -> tuple[int, ...]:
    ids: list[int] = []
    generation = model_dir / "generation_config.json"
    sources = [_read_json(generation)] if generation.exists() else []
    for source in [*sources, raw]:
        value = source.get("eos_token_id")
        ids += value if isinstance(value, list) else [value] if value is not None else []
    return tuple(dict.fromkeys(int(i) for i in ids))


def _check_not_quantized(raw: dict[str, Any], model_dir: Path) -> None:
    for key in ("quantization_config", "compression_config"):  # the second: compressed-tensors before it was merged
        found = raw.get(key)
        if found is None:
            continue
        method = found.get("quant_method") if isinstance(found, dict) else found
        raise ValueError(
            f"{model_dir / 'config.json'}: {key} with quant_method {method!r} is not supported; "
            "allowed: unquantized weights (float32, float16, bfloat16), or a .gguf file, which is dequantized"
        )


def config_from_dict(raw: dict[str, Any], model_dir: Path) -> ModelConfig:
    """Raises ValueError for an architecture that the engine does not run, quantized weights, and a missing size."""
    architecture = (raw.get("architectures") or ["LlamaForCausalLM"])[0]
    allowed = ("LlamaForCausalLM", "Qwen2ForCausalLM", "LlamaForCausalLMEagle3")
    if architecture not in allowed:
        raise ValueError(f"{model_dir}: architecture {architecture!r} is not supported; allowed: {', '.join(allowed)}")
    _check_not_quantized(raw, model_dir)
    missing = [key for key in _REQUIRED_KEYS if not isinstance(raw.get(key), int)]
    if missing:
        raise ValueError(f"{model_dir}: config.json has no whole number under {', '.join(missing)}; is it complete?")
    if raw.get("mlp_bias"):
        raise ValueError(f"{model_dir}: mlp_bias true is not supported; allowed: false")
    theta, scaling = _rope(raw)
    # transformers' Llama puts attention_bias on the output projection too, its Qwen2 never does.
    attention_bias = bool(raw.get("attention_bias", False))
    heads = int(raw["num_attention_heads"])
    return ModelConfig(
        hidden_size=int(raw["hidden_size"]),
        intermediate_size=int(raw["intermediate_size"]),
        num_layers=int(raw["num_hidden_layers"]),
        num_q_heads=heads,
        num_kv_heads=int(raw.get("num_key_value_heads") or heads),
        head_dim=int(raw.get("head_dim") or int(raw["hidden_size"]) // heads),
        vocab_size=int(raw["vocab_size"]),
        rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope_theta=theta,
        rope_scaling=scaling,
        max_position=int(raw.get("max_position_embeddings", 2048)),
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=architecture == "Qwen2ForCausalLM" or attention_bias,
        o_bias=architecture != "Qwen2ForCausalLM" and attention_bias,
        eos_token_ids=_eos_ids(raw, model_dir),
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # not JSON, or not text
        raise ValueError(f"{path}: not valid JSON ({error}); fetch or copy the model again") from error
    if not isinstance(raw, dict):
        raise ValueError(f"{path}: expected a JSON object, found {type(raw).__name__}")
    return raw


def read_config(model_dir: Path) -> tuple[ModelConfig, dict[str, Any]]:
    """The config of a Hugging Face model directory, and the raw JSON beside it."""
    path = model_dir / "config.json"
    if not path.exists():
        raise ValueError(
            f"model: {model_dir} has no config.json; give a Hugging Face directory, a .gguf file or a name"
        )
    raw = _read_json(path)
    return config_from_dict(raw, model_dir), raw


def rope_frequencies(config: ModelConfig) -> list[float]:
    """Inverse frequencies of the head_dim/2 rotations, after llama3 scaling if the config asks for it."""
    half = config.head_dim // 2
    inv = [config.rope_theta ** (-i / half) for i in range(half)]
    scaling = config.rope_scaling
    if scaling is None:
        return inv
    low_wavelen = scaling.original_max_position / scaling.low_freq_factor
    high_wavelen = scaling.original_max_position / scaling.high_freq_factor
    scaled = []
    for freq in inv:
        wavelen = 2 * math.pi / freq
        if wavelen < high_wavelen:
            scaled.append(freq)
        elif wavelen > low_wavelen:
            scaled.append(freq / scaling.factor)
        else:
            smooth = (scaling.original_max_position / wavelen - scaling.low_freq_factor) / (
                scaling.high_freq_factor - scaling.low_freq_factor
            )
            scaled.append((1 - smooth) * freq / scaling.factor + smooth * freq)
    return scaled
