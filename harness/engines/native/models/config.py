"""Model shapes: the content of a Hugging Face `config.json`, in the engine's own terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from specbench.harness.engines.native.models.config_keys import TARGET_KEYS
from specbench.harness.engines.native.models.config_rules import (
    Rule,
    check_keys,
    flag_of,
    number_of,
    shown,
    whole_of,
)
from specbench.harness.engines.native.models.experts_config import EXPERT_KEYS, ExpertsConfig, read_experts
from specbench.harness.engines.native.models.quantization import QUANTIZED_KEYS, Fp8Format, read_quantization
from specbench.harness.engines.native.models.rope_scaling import RopeScaling, read_rope
from specbench.workloads.guarded import read_json_object
from specbench.workloads.json_values import JsonObject

_READ_ABOVE = ("architectures", "model_type", *QUANTIZED_KEYS)
_REQUIRED_KEYS = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """What the transformers class of this name computes regardless of config.json, and its defaults for missing keys.

    A bias of None follows `attention_bias`. `head_dim` of None: hidden_size / num_attention_heads. `window`: the
    default without the key. `window_flag`: whether `use_sliding_window` switches it; None: it applies whenever it is
    present.
    """

    model_type: str
    qkv_bias: bool | None = None
    o_bias: bool | None = None
    qk_norm: bool = False
    head_dim: int | None = None
    window: int = 0
    window_flag: bool | None = None
    more_keys: Mapping[str, Rule] = field(default_factory=dict)  # that no other architecture has


# Of targets and of the single layer of heads.
ARCHITECTURES = {
    "LlamaForCausalLM": Architecture(model_type="llama"),
    "MistralForCausalLM": Architecture(
        model_type="mistral", qkv_bias=False, o_bias=False, window=4096, window_flag=False
    ),
    "Qwen2ForCausalLM": Architecture(model_type="qwen2", qkv_bias=True, o_bias=False, window_flag=True),
    "Qwen3ForCausalLM": Architecture(model_type="qwen3", qk_norm=True, head_dim=128, window_flag=True),
}
_QWEN3_MOE = Architecture(model_type="qwen3_moe", qk_norm=True, window_flag=True, more_keys=EXPERT_KEYS)
TARGET_ARCHITECTURES = {**ARCHITECTURES, "Qwen3MoeForCausalLM": _QWEN3_MOE}
_LLAMA = "LlamaForCausalLM"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """A decoder-only transformer of the Llama family, with or without experts, or the single layer of an EAGLE head."""

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
    qk_norm: bool = False  # each query and KV head, before rope
    experts: ExpertsConfig | None = None
    fp8: Fp8Format | None = None  # how matrices are stored; None: as numbers of the run's dtype

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

    @property
    def num_layer_weights(self) -> int:
        """Elements of the layers' matrices."""
        q, kv = self.num_q_heads * self.head_dim, self.num_kv_heads * self.head_dim
        sparse = [] if self.experts is None else [i for i in range(self.num_layers) if self.experts.has(i)]
        inner = 3 * self.intermediate_size * (self.num_layers - len(sparse))
        if self.experts is not None:
            inner += len(sparse) * self.experts.num_experts * (3 * self.experts.intermediate_size + 1)  # and the router
        return self.hidden_size * (self.num_layers * (2 * q + 2 * kv) + inner)

    def with_layers(self, num_layers: int) -> ModelConfig:
        return replace(self, num_layers=num_layers)

    def split(self, num_ranks: int, field: str = "tensor_parallel_size") -> ModelConfig:
        """What one of several ranks computes: its heads, and its part of the MLP's and of each expert's intermediate
        size. ValueError naming what is not divisible, by its key in config.json."""
        sizes = {
            "num_attention_heads": self.num_q_heads,
            "num_key_value_heads": self.num_kv_heads,
            "intermediate_size": self.intermediate_size,
            "vocab_size": self.vocab_size,
            "moe_intermediate_size": self.experts.intermediate_size if self.experts else 0,
        }
        for key, size in sizes.items():
            if size % num_ranks:
                raise ValueError(f"{field}: {num_ranks} is not allowed; {key} is {size}; allowed: a divisor of it")
        return replace(
            self,
            num_q_heads=self.num_q_heads // num_ranks,
            num_kv_heads=self.num_kv_heads // num_ranks,
            intermediate_size=self.intermediate_size // num_ranks,
            experts=self.experts and self.experts.split(num_ranks),
        )


def _architecture(raw: JsonObject, allowed: Mapping[str, Architecture], where: str) -> Architecture:
    """If absent: from the model's type, else Llama, whose layer heads use unless they name another."""
    names = raw.get("architectures")
    named = names[0] if isinstance(names, list) and len(names) == 1 else names
    if named is None or named == []:
        of_type = (a for a in allowed.values() if a.model_type == raw.get("model_type"))
        return next(of_type, ARCHITECTURES[_LLAMA])
    if not isinstance(named, str) or named not in allowed:
        raise ValueError(f"{where}: architecture {shown(named)} is not supported; allowed: {', '.join(allowed)}")
    return allowed[named]


def _check_whole_window(raw: JsonObject, architecture: Architecture, max_position: int, where: str) -> None:
    """Attention looks back to the first token."""
    window = whole_of(raw, "sliding_window", 0) if "sliding_window" in raw else architecture.window
    on = bool(window)
    if architecture.window_flag is not False:
        on = flag_of(raw, "use_sliding_window", default=on and architecture.window_flag is None)
    if on and window < max_position:
        default = f" (if it is absent from a {architecture.model_type} config)" if "sliding_window" not in raw else ""
        whole = "null" if architecture.window_flag is False else "use_sliding_window false"
        raise ValueError(
            f"{where}: sliding_window {window or 'null'}{default} is not supported; allowed: {whole}, or at least "
            f"max_position_embeddings ({max_position})"
        )


def _biases(raw: JsonObject, architecture: Architecture, where: str) -> tuple[bool, bool]:
    """Biases of the query, key and value projections, and of the output projection."""
    has_bias = flag_of(raw, "attention_bias")
    if has_bias and architecture.qkv_bias is False:
        raise ValueError(f"{where}: attention_bias true is not supported; allowed: false ({architecture.model_type})")
    qkv, o = architecture.qkv_bias, architecture.o_bias
    return has_bias if qkv is None else qkv, has_bias if o is None else o


def _head_dim(raw: JsonObject, default: int | None, where: str) -> int:
    hidden, heads = whole_of(raw, "hidden_size", 0), whole_of(raw, "num_attention_heads", 0)
    kv_heads = whole_of(raw, "num_key_value_heads", heads)
    if heads % kv_heads:
        raise ValueError(
            f"{where}: num_key_value_heads {kv_heads} is not allowed; allowed: a divisor of num_attention_heads "
            f"({heads})"
        )
    if raw.get("head_dim") is None and default is None and hidden % heads:
        raise ValueError(
            f"{where}: num_attention_heads {heads} is not allowed; allowed: a divisor of hidden_size ({hidden})"
        )
    head_dim = whole_of(raw, "head_dim", default or hidden // heads)
    if head_dim % 2:
        raise ValueError(f"{where}: head_dim {head_dim} is not allowed; allowed: an even number, for rotary positions")
    return head_dim


def checked_config(
    raw: JsonObject, keys: Mapping[str, Rule], architectures: Mapping[str, Architecture], where: str, model_dir: Path
) -> ModelConfig:
    """The shape in a config.json, all of whose keys must be in `keys`; errors start with `where`."""
    architecture = _architecture(raw, architectures, where)
    fp8 = read_quantization(raw, where)
    known = {**keys, **architecture.more_keys}
    check_keys({key: value for key, value in raw.items() if key not in _READ_ABOVE}, known, where)
    missing = [key for key in _REQUIRED_KEYS if raw.get(key) is None]
    if missing:
        raise ValueError(f"{model_dir}: config.json has no whole number under {', '.join(missing)}; is it complete?")
    max_position = whole_of(raw, "max_position_embeddings", 2048)
    _check_whole_window(raw, architecture, max_position, where)
    theta, scaling = read_rope(raw, max_position, where)
    qkv_bias, o_bias = _biases(raw, architecture, where)
    heads = whole_of(raw, "num_attention_heads", 0)
    return ModelConfig(
        hidden_size=whole_of(raw, "hidden_size", 0),
        intermediate_size=whole_of(raw, "intermediate_size", 0),
        num_layers=whole_of(raw, "num_hidden_layers", 0),
        num_q_heads=heads,
        num_kv_heads=whole_of(raw, "num_key_value_heads", heads),
        head_dim=_head_dim(raw, architecture.head_dim, where),
        vocab_size=whole_of(raw, "vocab_size", 0),
        rms_norm_eps=number_of(raw, "rms_norm_eps", 1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        max_position=scaling.max_position(max_position) if scaling else max_position,
        tie_word_embeddings=flag_of(raw, "tie_word_embeddings"),
        qkv_bias=qkv_bias,
        o_bias=o_bias,
        qk_norm=architecture.qk_norm,
        fp8=fp8,
        experts=read_experts(raw, where) if architecture.more_keys else None,
    )


def config_from_dict(raw: JsonObject, model_dir: Path) -> ModelConfig:
    """The config of a target. Raises ValueError for what the engine does not run: names the key and what is allowed."""
    where = str(model_dir / "config.json")
    config = checked_config(raw, TARGET_KEYS, TARGET_ARCHITECTURES, where, model_dir)
    wanted = _architecture(raw, TARGET_ARCHITECTURES, where).model_type
    if raw.get("model_type") not in (None, wanted):  # transformers chooses the model by it
        raise ValueError(f"{where}: model_type {shown(raw['model_type'])} is not supported; allowed: {wanted}")
    return config


def read_raw(model_dir: Path) -> JsonObject:
    """config.json of a Hugging Face model directory, unchecked."""
    path = model_dir / "config.json"
    if not path.is_file():
        raise ValueError(
            f"model: {model_dir} has no config.json; give a Hugging Face directory, a .gguf file or a name"
        )
    return read_json_object(path)


def read_config(model_dir: Path) -> tuple[ModelConfig, JsonObject]:
    """The config of a target, and the raw JSON."""
    raw = read_raw(model_dir)
    return config_from_dict(raw, model_dir), raw
