"""Model shapes: what a Hugging Face `config.json` says, in the engine's own words."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

from specbench.workloads.json_values import Json, JsonObject

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


def number_of(raw: JsonObject, key: str, default: float | None = None) -> float:
    """A number of a config.json; `default` where it is missing or null. ValueError for anything else."""
    value = raw.get(key)
    if value is None:
        value = default
    if not isinstance(value, (int, float, str)):
        raise ValueError(f"config.json: {key} is {value!r}; allowed: a number")
    return float(value)


def size_of(raw: JsonObject, key: str, default: int) -> int:
    """A size of a config.json; `default` where it is missing, null or 0. ValueError for what is not a number."""
    return int(number_of(raw, key, default)) or default


def table_of(raw: JsonObject, key: str) -> JsonObject:
    """An object inside a config.json, empty where it is missing or null."""
    value = raw.get(key)
    return value if isinstance(value, dict) else {}


def _rope(raw: JsonObject) -> tuple[float, RopeScaling | None]:
    """Both spellings: `rope_theta`/`rope_scaling` (hub files) and `rope_parameters` (transformers 5)."""
    params = table_of(raw, "rope_parameters")
    theta = number_of(params, "rope_theta", number_of(raw, "rope_theta", 10000.0))
    scaling = table_of(raw, "rope_scaling") or params
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise ValueError(f"config.json: rope_scaling type {kind!r} is not supported; allowed: default, llama3")
    return theta, RopeScaling(
        factor=number_of(scaling, "factor"),
        low_freq_factor=number_of(scaling, "low_freq_factor"),
        high_freq_factor=number_of(scaling, "high_freq_factor"),
        original_max_position=int(number_of(scaling, "original_max_position_embeddings")),
    )


def _eos_ids(raw: JsonObject, model_dir: Path) -> tuple[int, ...]:
    ids: list[Json] = []
    generation = model_dir / "generation_config.json"
    sources = [_read_json(generation)] if generation.exists() else []
    for source in [*sources, raw]:
        value = source.get("eos_token_id")
        ids += value if isinstance(value, list) else [value]
    return tuple(dict.fromkeys(int(i) for i in ids if isinstance(i, (int, float, str))))


def _check_not_quantized(raw: JsonObject, model_dir: Path) -> None:
    for key in ("quantization_config", "compression_config"):  # the second: compressed-tensors before it was merged
        found = raw.get(key)
        if found is None:
            continue
        method = found.get("quant_method") if isinstance(found, dict) else found
        raise ValueError(
            f"{model_dir / 'config.json'}: {key} with quant_method {method!r} is not supported; "
            "allowed: unquantized weights (float32, float16, bfloat16), or a .gguf file, which is dequantized"
        )


def config_from_dict(raw: JsonObject, model_dir: Path) -> ModelConfig:
    """Raises ValueError for an architecture that the engine does not run, quantized weights, and a missing size."""
    architectures = raw.get("architectures")
    architecture = architectures[0] if isinstance(architectures, list) and architectures else "LlamaForCausalLM"
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
    hidden_size, heads = size_of(raw, "hidden_size", 0), size_of(raw, "num_attention_heads", 0)
    return ModelConfig(
        hidden_size=hidden_size,
        intermediate_size=size_of(raw, "intermediate_size", 0),
        num_layers=size_of(raw, "num_hidden_layers", 0),
        num_q_heads=heads,
        num_kv_heads=size_of(raw, "num_key_value_heads", heads),
        head_dim=size_of(raw, "head_dim", hidden_size // heads),
        vocab_size=size_of(raw, "vocab_size", 0),
        rms_norm_eps=number_of(raw, "rms_norm_eps", 1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        max_position=size_of(raw, "max_position_embeddings", 2048),
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=architecture == "Qwen2ForCausalLM" or attention_bias,
        o_bias=architecture != "Qwen2ForCausalLM" and attention_bias,
        eos_token_ids=_eos_ids(raw, model_dir),
    )


def _read_json(path: Path) -> JsonObject:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # not JSON, or not text
        raise ValueError(f"{path}: not valid JSON ({error}); fetch or copy the model again") from error
    if not isinstance(raw, dict):
        raise ValueError(f"{path}: expected a JSON object, found {type(raw).__name__}")
    return raw


def read_config(model_dir: Path) -> tuple[ModelConfig, JsonObject]:
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
