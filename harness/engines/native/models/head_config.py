"""The content of an EAGLE head's config.json; its tensors determine the format, and thus the keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specbench.harness.engines.native.models.config import ARCHITECTURES, ModelConfig, checked_config, read_raw
from specbench.harness.engines.native.models.config_keys import EAGLE1_KEYS, EAGLE3_KEYS, SPECULATORS_KEYS
from specbench.harness.engines.native.models.config_rules import check_keys, flag_of, object_of, shown, whole_of
from specbench.harness.engines.native.models.quantization import check_unquantized
from specbench.workloads.json_values import Json, JsonObject

_NUM_AUX = 3  # as in the paper
# By the names of SafeAILab, SGLang and vLLM; the last two are those of speculators.
_ARCHITECTURES = {
    **ARCHITECTURES,
    **dict.fromkeys(
        "LlamaForCausalLMEagle EagleLlamaForCausalLM LlamaForCausalLMEagle3 Eagle3LlamaForCausalLM".split(),
        ARCHITECTURES["LlamaForCausalLM"],
    ),
    "Eagle3Qwen3ForCausalLM": ARCHITECTURES["Qwen3ForCausalLM"],
}
_OF_SPECULATORS = ("Eagle3Speculator", "Eagle3DraftModel")


@dataclass(frozen=True, kw_only=True, slots=True)
class Eagle1Config:
    """`qkv_bias`: None if the config does not have it. `draft_vocab_size`: rows of the head's own lm_head."""

    layer: ModelConfig
    draft_vocab_size: int
    fc_bias: bool
    qkv_bias: bool | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Eagle3Config:
    """The defaults are the original EAGLE-3. `aux_layers`: the layers whose inputs it was trained on, if the config has
    them; `own_layers` if all engines read them the same way, so that any layers work."""

    layer: ModelConfig
    draft_vocab_size: int
    target_hidden_size: int
    aux_layers: tuple[int, ...] = ()
    own_layers: tuple[int, ...] = ()
    num_aux: int = 3
    fc_norm: bool = False  # a norm for each of the three states
    norm_before_fc: bool = False  # one norm over all
    norm_before_residual: bool = False
    norm_output: bool = False
    placeholder_id: int | None = None  # the token of rows for drafts that are not known yet; None: drafts one by one


def read_eagle1_config(head_dir: Path) -> Eagle1Config:
    """ValueError for an unknown key, or for a value that this engine does not run."""
    raw = read_raw(head_dir)
    check_unquantized(raw, _where(head_dir))
    layer = checked_config(raw, EAGLE1_KEYS, _ARCHITECTURES, _where(head_dir), head_dir)
    return Eagle1Config(
        layer=layer,
        draft_vocab_size=whole_of(raw, "draft_vocab_size", layer.vocab_size),
        fc_bias=flag_of(raw, "bias", default=True),  # published configs without the key mean true
        qkv_bias=flag_of(raw, "qkv_bias") if raw.get("qkv_bias") is not None else None,
    )


def read_eagle3_config(head_dir: Path) -> Eagle3Config:
    """ValueError for an unknown key, or for a value that this engine does not run."""
    raw = _flat(read_raw(head_dir), _where(head_dir))
    check_unquantized(raw, _where(head_dir))
    layer = checked_config(raw, EAGLE3_KEYS, _ARCHITECTURES, _where(head_dir), head_dir)
    nested = object_of(raw, "eagle_config")
    key = "eagle_aux_hidden_state_layer_ids"
    own = _numbers(raw.get(key))
    num_aux = whole_of(raw, "num_aux_hidden_states", len(own) or _NUM_AUX)
    if num_aux != (len(own) or _NUM_AUX):
        raise ValueError(
            f"{_where(head_dir)}: num_aux_hidden_states {num_aux} is not supported; allowed: "
            f"{len(own) or _NUM_AUX}, as many as {key}"
        )
    if flag_of(raw, "fc_norm") and flag_of(raw, "norm_before_fc", flag_of(nested, "norm_before_fc")):
        raise ValueError(f"{_where(head_dir)}: fc_norm and norm_before_fc are both true; allowed: one of them")
    placeholder_id = whole_of(raw, "ptd_token_id", -1)
    if placeholder_id >= layer.vocab_size:
        raise ValueError(
            f"{_where(head_dir)}: ptd_token_id {placeholder_id} is not supported; allowed: 0 to {layer.vocab_size - 1}"
        )
    return Eagle3Config(
        layer=layer,
        draft_vocab_size=whole_of(raw, "draft_vocab_size", layer.vocab_size),
        target_hidden_size=whole_of(raw, "target_hidden_size", layer.hidden_size),
        aux_layers=_numbers(nested.get(key)),
        own_layers=own,
        num_aux=num_aux,
        fc_norm=flag_of(raw, "fc_norm"),
        norm_before_fc=flag_of(raw, "norm_before_fc", flag_of(nested, "norm_before_fc")),
        norm_before_residual=flag_of(raw, "norm_before_residual"),
        norm_output=flag_of(raw, "norm_output"),
        placeholder_id=None if placeholder_id < 0 else placeholder_id,
    )


def _flat(raw: JsonObject, where: str) -> JsonObject:
    """The config of speculators with the keys of the others, whose configs are returned unchanged."""
    if "transformer_layer_config" not in raw and "speculators_model_type" not in raw:
        return raw
    named = raw.get("architectures")
    if named not in [[name] for name in _OF_SPECULATORS]:
        raise ValueError(
            f"{where}: architecture {shown(named)} is not supported; allowed with transformer_layer_config: "
            f"{', '.join(_OF_SPECULATORS)}"
        )
    own = {key: value for key, value in raw.items() if key not in ("architectures", "model_type")}
    check_keys(own, SPECULATORS_KEYS, where)
    for key in ("speculators_model_type", "transformer_layer_config", "norm_before_residual"):
        if own.get(key) is None:  # the latest speculators and vLLM have different defaults
            raise ValueError(f"{where}: {key} is missing; is this config complete?")
    layer = object_of(raw, "transformer_layer_config")
    kind = layer.get("model_type", "llama")
    classes = {a.model_type: name for name, a in ARCHITECTURES.items() if a.model_type in ("llama", "qwen3")}
    if not isinstance(kind, str) or kind not in classes:
        raise ValueError(
            f"{where}: transformer_layer_config: model_type {shown(kind)} is not supported; allowed: "
            f"{', '.join(classes)}"
        )
    heads = {key: value for key, value in own.items() if key in EAGLE3_KEYS}
    return {**layer, **heads, "architectures": [classes[kind]], "model_type": kind}


def _where(head_dir: Path) -> str:
    return f"head: {head_dir / 'config.json'}"


def _numbers(value: Json) -> tuple[int, ...]:
    return tuple(entry for entry in value if isinstance(entry, int)) if isinstance(value, list) else ()
