"""How rotary frequencies are stretched for texts longer than those a model was trained on, and what config.json says
of it. Formulas as in transformers' modeling_rope_utils, fields named as the keys there."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specbench.harness.engines.native.models.config_keys import ROPE_KEYS, SCALING_KEYS
from specbench.harness.engines.native.models.config_rules import (
    check_keys,
    flag_of,
    number_of,
    object_of,
    shown,
    whole_of,
)
from specbench.workloads.json_values import JsonObject


@dataclass(frozen=True, kw_only=True, slots=True)
class Llama3Scaling:
    """Llama-3.1's scaling: long wavelengths are divided by `factor`, short ones stay, those in between are mixed."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int

    rope_type = "llama3"
    amplitude = 1.0

    def __post_init__(self) -> None:
        if self.low_freq_factor >= self.high_freq_factor:
            raise ValueError(
                f"low_freq_factor {self.low_freq_factor:g} is not allowed; allowed: below high_freq_factor "
                f"({self.high_freq_factor:g})"
            )

    def max_position(self, configured: int) -> int:
        return configured

    def frequencies(self, theta: float, half: int) -> list[float]:
        low, high = self.low_freq_factor, self.high_freq_factor
        result = []
        for freq in plain_frequencies(theta, half):
            turns = self.original_max_position_embeddings / (2 * math.pi / freq)
            kept = min(max((turns - low) / (high - low), 0.0), 1.0)
            result.append((1 - kept) * freq / self.factor + kept * freq)
        return result


@dataclass(frozen=True, kw_only=True, slots=True)
class YarnScaling:
    """YaRN (Peng et al. 2023, arXiv 2309.00071): the same by the number of a rotation, and cosines and sines grow by
    `amplitude`. 0 means that a factor is not given."""

    factor: float
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 0.0
    mscale: float = 0.0
    mscale_all_dim: float = 0.0
    truncate: bool = True

    rope_type = "yarn"

    def __post_init__(self) -> None:
        if self.beta_fast < self.beta_slow:
            raise ValueError(
                f"beta_fast {self.beta_fast:g} is not allowed; allowed: at least beta_slow ({self.beta_slow:g})"
            )

    @property
    def amplitude(self) -> float:
        if self.attention_factor:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return self._grown(self.mscale) / self._grown(self.mscale_all_dim)
        return self._grown(1.0)

    def _grown(self, mscale: float) -> float:
        return 0.1 * mscale * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0

    def max_position(self, configured: int) -> int:
        """Configs of Qwen keep the length of training in `max_position_embeddings` when yarn is added."""
        return max(configured, int(self.factor * self.original_max_position_embeddings))

    def frequencies(self, theta: float, half: int) -> list[float]:
        low, high = self._rotation(self.beta_fast, theta, half), self._rotation(self.beta_slow, theta, half)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, 2 * half - 1)
        width = high - low or 0.001
        result = []
        for i, freq in enumerate(plain_frequencies(theta, half)):
            stretched = min(max((i - low) / width, 0.0), 1.0)
            result.append(stretched * freq / self.factor + (1 - stretched) * freq)
        return result

    def _rotation(self, num_turns: float, theta: float, half: int) -> float:
        """The index of the rotation that turns `num_turns` times within the training length."""
        return half * math.log(self.original_max_position_embeddings / (num_turns * 2 * math.pi)) / math.log(theta)


RopeScaling = Llama3Scaling | YarnScaling


def plain_frequencies(theta: float, half: int) -> list[float]:
    """Inverse frequencies of `half` rotations."""
    return [theta ** (-i / half) for i in range(half)]


def read_rope(raw: JsonObject, max_position: int, where: str) -> tuple[float, RopeScaling | None]:
    """Base and scaling. Both spellings: `rope_theta`/`rope_scaling` (hub files), `rope_parameters` (transformers 5)."""
    scaling = _agreed(object_of(raw, "rope_scaling"), object_of(raw, "rope_parameters"), where)
    theta = number_of(_agreed(scaling, {"rope_theta": raw.get("rope_theta")}, where), "rope_theta", 10000.0)
    kind = scaling.get("type", scaling.get("rope_type", "default"))
    if scaling.get("rope_type", kind) != kind:
        raise ValueError(f"{where}: rope_scaling has type {kind} and rope_type {scaling['rope_type']}")
    if kind == "default":
        check_keys(scaling, ROPE_KEYS, f"{where}: rope_scaling of type default")
        return theta, None
    kind = str(kind)
    check_keys(scaling, SCALING_KEYS[kind], f"{where}: rope_scaling of type {kind}")
    try:
        return theta, _read_llama3(scaling) if kind == "llama3" else _read_yarn(scaling, max_position, theta)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _read_llama3(scaling: JsonObject) -> Llama3Scaling:
    for key in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"):
        _require(scaling, key, "llama3")
    return Llama3Scaling(
        factor=number_of(scaling, "factor"),
        low_freq_factor=number_of(scaling, "low_freq_factor"),
        high_freq_factor=number_of(scaling, "high_freq_factor"),
        original_max_position_embeddings=whole_of(scaling, "original_max_position_embeddings", 0),
    )


def _read_yarn(scaling: JsonObject, max_position: int, theta: float) -> YarnScaling:
    _require(scaling, "factor", "yarn")
    if theta <= 1:  # its logarithm divides
        raise ValueError(f"rope_theta {theta:g} is not allowed with rope_scaling of type yarn; allowed: above 1")
    return YarnScaling(
        factor=number_of(scaling, "factor"),
        original_max_position_embeddings=whole_of(scaling, "original_max_position_embeddings", max_position),
        beta_fast=number_of(scaling, "beta_fast", 32.0),
        beta_slow=number_of(scaling, "beta_slow", 1.0),
        attention_factor=number_of(scaling, "attention_factor", 0.0),
        mscale=number_of(scaling, "mscale", 0.0),
        mscale_all_dim=number_of(scaling, "mscale_all_dim", 0.0),
        truncate=flag_of(scaling, "truncate", default=True),
    )


def _require(scaling: JsonObject, key: str, kind: str) -> None:
    if scaling.get(key) is None:
        raise ValueError(f"rope_scaling of type {kind} needs {key}")


def _agreed(first: JsonObject, second: JsonObject, where: str) -> JsonObject:
    """Both merged; ValueError if they have a common key with different values."""
    for key, value in second.items():
        if value is not None and first.get(key, value) not in (None, value):
            raise ValueError(f"{where}: {key} is both {shown(first[key])} and {shown(value)}; allowed: one of them")
    return {key: value for source in (first, second) for key, value in source.items() if value is not None}
