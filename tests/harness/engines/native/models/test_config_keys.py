"""Every key of a config.json is used, known to be harmless, or refused by name; good checkpoints keep loading."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from toy.checkpoints import eagle1_config, eagle3_config, llama_config, write_eagle1, write_eagle3
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from specbench.harness.engines.native.models.config import config_from_dict
from specbench.harness.engines.native.models.head_config import read_eagle1_config, read_eagle3_config
from specbench.harness.engines.native.models.heads import load_head

ANYWHERE = Path("/models/a")


def _sizes(**changes) -> dict:
    return {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu",
        "initializer_range": 0.02, "torch_dtype": "bfloat16", "transformers_version": "4.43.0", "use_cache": True,
        "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 8192, "tie_word_embeddings": False, **changes,
    }  # fmt: skip


LLAMA3_ROPE = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}  # fmt: skip
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
# Keys as in the hub's files of these models, sizes of a toy.
GOOD = {
    "Llama-2-7b-chat": _sizes(**LLAMA, _name_or_path="x", max_length=4096, pad_token_id=0, pretraining_tp=1,
                              rope_scaling=None),
    "Llama-3.1-8B": _sizes(**LLAMA, attention_bias=False, attention_dropout=0.0, mlp_bias=False, pretraining_tp=1,
                           rope_scaling=LLAMA3_ROPE, rope_theta=500000.0, eos_token_id=[2, 3]),
    "vicuna-7b": _sizes(**LLAMA, max_sequence_length=2048, pad_token_id=0),
    "SmolLM2-135M-Instruct": _sizes(**LLAMA, is_llama_config=True, rope_interleaved=False, rope_theta=100000,
                                    **{"transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}}),
    "Qwen2.5-1.5B": _sizes(**QWEN2, attention_dropout=0.0, max_window_layers=21, rope_theta=1000000.0,
                           sliding_window=4096, use_sliding_window=False, use_mrope=False),
    "Qwen2-7B": _sizes(**QWEN2, sliding_window=131072, max_window_layers=28),
    "Qwen3-4B": _sizes(**QWEN3, attention_bias=False, attention_dropout=0.0, head_dim=128, max_window_layers=36,
                       rope_scaling=None, rope_theta=1000000, sliding_window=None, use_sliding_window=False),
    "Mistral-7B-Instruct-v0.3": _sizes(**MISTRAL, attention_dropout=0.0, rope_theta=1000000.0, sliding_window=None),
    "Falcon3-7B": _sizes(**LLAMA, activation="swiglu", head_dim=16),
    "unsloth": _sizes(**LLAMA, unsloth_fixed=True, unsloth_version="2024.9", pad_token_id=0),
    "transformers 5, Llama": LlamaConfig().to_dict(),
    "transformers 5, Qwen2": Qwen2Config().to_dict(),
    "transformers 5, Qwen3": Qwen3Config().to_dict(),
    "transformers 5, Mistral": MistralConfig(sliding_window=None).to_dict(),
}  # fmt: skip
EAGLE3 = {
    "SafeAILab": _sizes(**LLAMA, num_hidden_layers=1, draft_vocab_size=32, pad_token_id=0),
    "SGLang": _sizes(architectures=["LlamaForCausalLMEagle3"], model_type="llama", num_hidden_layers=1, head_dim=16,
                     draft_vocab_size=32, target_hidden_size=64, attention_bias=False, mlp_bias=False, pretraining_tp=1,
                     rope_scaling=LLAMA3_ROPE, eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 2, 3],
                                                             "use_aux_hidden_state": True}),
    "modelopt": _sizes(architectures=["LlamaForCausalLMEagle3"], model_type="llama", num_hidden_layers=1,
                       draft_vocab_size=32, eagle_config={
                           "eagle_aux_hidden_state_layer_ids": [], "use_aux_hidden_state": True, "has_lm_head": True,
                           "use_input_layernorm_in_first_layer": True, "use_last_layernorm": True,
                           "use_mtp_layernorm": False, "parallel_draft_step": 1}),
}  # fmt: skip
EAGLE1 = {
    "SafeAILab": _sizes(**LLAMA, num_hidden_layers=1, pretraining_tp=1, rope_scaling=None),
    "SafeAILab, Qwen2": _sizes(**QWEN2, num_hidden_layers=1, sliding_window=4096, use_sliding_window=False,
                               max_window_layers=28, qkv_bias=True, bias=True),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_configs_of_published_models_are_read(name):
    raw = json.loads(json.dumps(GOOD[name]))
    config = config_from_dict(raw, ANYWHERE)
    assert (config.hidden_size, config.num_layers) == (raw["hidden_size"], raw["num_hidden_layers"])
    assert config.qkv_bias == (raw["model_type"] == "qwen2") and config.qk_norm == (raw["model_type"] == "qwen3")


@pytest.mark.parametrize("name", EAGLE3)
def test_configs_of_published_eagle3_heads_are_read(name, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(EAGLE3[name]))
    head = read_eagle3_config(tmp_path)
    assert (head.draft_vocab_size, head.target_hidden_size, head.layer.num_layers) == (32, 64, 1)
    assert head.aux_layers == ((1, 2, 3) if name == "SGLang" else ())


@pytest.mark.parametrize("name", EAGLE1)
def test_configs_of_published_eagle1_heads_are_read(name, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(EAGLE1[name]))
    head = read_eagle1_config(tmp_path)
    assert (head.draft_vocab_size, head.fc_bias) == (128, True)
    assert head.qkv_bias is (True if "Qwen2" in name else None)


def _rope(**changes) -> dict:
    return {"rope_scaling": {**LLAMA3_ROPE, **changes}}


def _rope_without(key: str) -> dict:
    return {"rope_scaling": {name: value for name, value in LLAMA3_ROPE.items() if name != key}}


def _yarn(**changes) -> dict:
    return {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, **changes}}


REFUSED = [
    # what changes the model
    ({"attention_window": 5}, "key 'attention_window' with 5 is not known to this engine"),
    ({"use_rope": False}, "key 'use_rope' with false is not known"),
    ({"num_experts": 8}, "key 'num_experts' with 8 is not known"),
    ({"query_pre_attn_scalar": 224}, "key 'query_pre_attn_scalar' with 224 is not known"),
    ({"final_logit_softcapping": 30.0}, "key 'final_logit_softcapping' with 30.0 is not known"),
    ({"attention_bais": True}, "key 'attention_bais' with true is not known"),
    ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported; allowed: silu, swish"),
    ({"hidden_act": 5}, "hidden_act 5 is not supported; allowed: silu, swish"),
    ({"mlp_bias": True}, "mlp_bias true is not supported; allowed: false"),
    ({"attention_bias": "yes"}, "attention_bias 'yes' is not supported; allowed: false, true"),
    ({"bias": True}, "bias true is not supported; allowed: false"),
    ({"logit_scale": 0.0625}, "logit_scale 0.0625 is not supported; allowed: 1"),
    ({"residual_multiplier": 0.22}, "residual_multiplier 0.22 is not supported; allowed: 1"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not supported; allowed: 1"),
    ({"rope_interleaved": True}, "rope_interleaved true is not supported; allowed: false"),
    ({"is_encoder_decoder": True}, "is_encoder_decoder true is not supported"),
    ({"pruned_heads": {"0": [1]}}, r'pruned_heads {"0": [1]} is not supported; allowed: nothing in it'),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types .* is not supported; allowed: a list"),
    ({"sliding_window": 256}, "sliding_window 256 is not supported; allowed: .*max_position_embeddings (512)"),
    ({**QWEN2, "sliding_window": 256, "use_sliding_window": True}, "sliding_window 256 is not supported"),
    ({**QWEN2, "use_sliding_window": True}, "sliding_window null .* is not supported"),
    ({**QWEN3, "sliding_window": 256, "use_sliding_window": True}, "sliding_window 256 is not supported; allowed: us"),
    ({**MISTRAL, "max_position_embeddings": 32768, "sliding_window": 4096}, "sliding_window 4096 is not supported; "
     "allowed: null, or at least max_position_embeddings (32768)"),
    ({**MISTRAL, "max_position_embeddings": 32768}, "sliding_window 4096 (if it is absent from a mistral config) is"),
    ({**MISTRAL, "sliding_window": 256, "use_sliding_window": False}, "sliding_window 256 is not supported"),
    ({**MISTRAL, "attention_bias": True}, "attention_bias true is not supported; allowed: false (mistral)"),
    ({**QWEN3, "model_type": "llama"}, "model_type 'llama' is not supported; allowed: qwen3"),
    ({**QWEN3, "model_type": "qwen3_moe"}, "model_type 'qwen3_moe' is not supported; allowed: qwen3"),
    ({"architectures": ["MixtralForCausalLM"]}, "architecture 'MixtralForCausalLM' is not supported; allowed: Llama"),
    ({"auto_map": {"AutoModelForCausalLM": "m.Model"}}, "auto_map .* is not supported; allowed: no AutoModel entries"),
    ({"model_type": "mistral"}, "model_type 'mistral' is not supported; allowed: llama"),
    ({"architectures": 5}, "architecture 5 is not supported; allowed: LlamaForCausalLM, MistralForCausalLM, Qwen2F"),
    ({"architectures": ["LlamaForCausalLMEagle3"]}, "architecture 'LlamaForCausalLMEagle3' is not supported"),
    ({"architectures": ["LlamaForCausalLM", "X"]}, "architecture .* is not supported"),
    # sizes and numbers
    ({"num_attention_heads": 0}, "num_attention_heads 0 is not supported; allowed: a whole number from 1 to"),
    ({"num_attention_heads": 5}, "num_key_value_heads 2 is not allowed; allowed: a divisor of num_attention_heads (5)"),
    ({"num_attention_heads": 6, "head_dim": None}, "num_attention_heads 6 is not allowed; .*divisor of hidden_size"),
    ({"hidden_size": True}, "hidden_size true is not supported; allowed: a whole number"),
    ({"hidden_size": 64.0}, "hidden_size 64.0 is not supported; allowed: a whole number"),
    ({"hidden_size": "64"}, "hidden_size '64' is not supported; allowed: a whole number"),
    ({"vocab_size": 10**23}, "vocab_size 1(0){23} is not supported; allowed: a whole number from 1 to"),
    ({"num_hidden_layers": -5}, "num_hidden_layers -5 is not supported; allowed: a whole number from 1 to 10000"),
    ({"head_dim": 15}, "head_dim 15 is not allowed; allowed: an even number"),
    ({"max_position_embeddings": "x"}, "max_position_embeddings 'x' is not supported"),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps NaN is not supported; allowed: a number above 0"),
    ({"rms_norm_eps": 0}, "rms_norm_eps 0 is not supported"),
    ({"rms_norm_eps": float("inf")}, "rms_norm_eps Infinity is not supported"),
    ({"rope_theta": 0}, "rope_theta 0 is not supported; allowed: a number above 0"),
    ({"rope_theta": "abc"}, "rope_theta 'abc' is not supported"),
    ({"rope_theta": [1e4]}, "rope_theta [10000.0] is not supported"),
    ({"eos_token_id": {"a": 1}}, 'eos_token_id {"a": 1} is not supported'),
    ({"eos_token_id": "2"}, "eos_token_id '2' is not supported"),
    ({"eos_token_id": [[2]]}, "eos_token_id [[2]] is not supported"),
    # rope
    ({"rope_scaling": "yarn"}, "rope_scaling 'yarn' is not supported; allowed: an object"),
    ({"rope_scaling": {"type": "linear", "factor": 4.0}}, "rope_scaling: type 'linear' is not supported; allowed: def"),
    (_rope(rope_type="longrope"), "rope_scaling: rope_type 'longrope' is not supported; allowed: default, llama3, y"),
    (_rope(factor=0), "rope_scaling: factor 0 is not supported; allowed: a number above 0"),
    (_rope(factor="8"), "rope_scaling: factor '8' is not supported"),
    (_rope(low_freq_factor=4), "low_freq_factor 4 is not allowed; allowed: below high_freq_factor (4)"),
    (_rope(beta_fast=32), "rope_scaling of type llama3: key 'beta_fast' with 32 is not known"),
    (_rope(rope_type="yarn"), "rope_scaling of type yarn: key 'low_freq_factor' with 1.0 is not known"),
    (_yarn(factor=None), "rope_scaling of type yarn needs factor"),
    (_yarn(factor=True), "rope_scaling: factor true is not supported"),
    (_yarn(truncate=1), "rope_scaling: truncate 1 is not supported; allowed: false, true"),
    (_yarn(beta_fast=0.5), "beta_fast 0.5 is not allowed; allowed: at least beta_slow (1)"),
    (_yarn(attention_scale=1.0), "rope_scaling: key 'attention_scale' with 1.0 is not known"),
    ({**_yarn(), "rope_theta": 1}, "rope_theta 1 is not allowed with rope_scaling of type yarn; allowed: above 1"),
    (_rope(type="default"), "rope_scaling has type default and rope_type llama3"),
    (_rope_without("factor"), "rope_scaling of type llama3 needs factor"),
    (_rope_without("original_max_position_embeddings"), "rope_scaling of type llama3 needs original_max_position"),
    ({"rope_scaling": {"rope_type": "default", "factor": 4.0}}, "key 'factor' with 4.0 is not known"),
    ({"rope_parameters": {"rope_theta": 5e5}}, "rope_theta is both 500000.0 and 10000.0"),
    ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "rope_parameters: key 'full_attention' with"),
]  # fmt: skip


def _escaped(words: str) -> str:
    """`.*` and `(0){23}` are patterns, all else is text."""
    parts = re.split(r"(\.\*|\(0\)\{23\})", words)
    return "".join(part if part in (".*", "(0){23}") else re.escape(part) for part in parts)


@pytest.mark.parametrize(("change", "words"), REFUSED, ids=[words[:40] for _, words in REFUSED])
def test_what_the_engine_does_not_compute_is_refused_by_name(change, words):
    raw = json.loads(json.dumps(llama_config(**change)))
    with pytest.raises(ValueError, match=_escaped(words)) as refusal:
        config_from_dict(raw, ANYWHERE)
    assert str(ANYWHERE / "config.json") in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("key", ["logit_scale", "unheard_of", "sliding_window", "auto_map", "rope_scaling"])
def test_a_key_that_is_null_is_absent(key):
    assert config_from_dict(llama_config(**{key: None}), ANYWHERE) == config_from_dict(llama_config(), ANYWHERE)


@pytest.mark.parametrize("window", [0, 512, 131072])
def test_a_window_over_all_positions_is_none(window):
    assert config_from_dict(llama_config(sliding_window=window), ANYWHERE).max_position == 512


BAD_HEADS = [
    ({"num_hidden_layers": -5}, "num_hidden_layers -5 is not supported; allowed: 1"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers 1000000000 is not supported; allowed: 1"),
    ({"max_position_embeddings": "x"}, "max_position_embeddings 'x' is not supported; allowed: a whole number"),
    ({"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling of type llama3 needs factor"),
    ({"draft_vocab_size": "48"}, "draft_vocab_size '48' is not supported; allowed: a whole number"),
    ({"quirk": 1}, "key 'quirk' with 1 is not known to this engine"),
    ({"hidden_act": "relu"}, "hidden_act 'relu' is not supported"),
]
BAD_EAGLE3 = [
    ({"bias": True}, "bias true is not supported; allowed: false"),
    ({"norm_output": "yes"}, "norm_output 'yes' is not supported; allowed: false, true"),
    ({"eagle_config": {"use_mtp_layernorm": True}}, "eagle_config: use_mtp_layernorm true is not supported"),
    ({"eagle_config": {"quirk": 1}}, "eagle_config: key 'quirk' with 1 is not known"),
    ({"eagle_config": []}, "eagle_config [] is not supported; allowed: an object"),
    (
        {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}},
        "was trained on the states entering layers (1,",
    ),
    ({"eagle_aux_hidden_state_layer_ids": [1, 2, 7]}, "entering layers (1, 2, 7) .* the target has 6 layers"),
    ({"fc_norm": True, "norm_before_fc": True}, "fc_norm and norm_before_fc are both true; allowed: one of them"),
    ({"eagle_aux_hidden_state_layer_ids": "2"}, "eagle_aux_hidden_state_layer_ids '2' is not supported"),
]
BAD_EAGLE1 = [
    ({"norm_before_residual": True}, "key 'norm_before_residual' with true is not known"),
    ({"bias": "no"}, "bias 'no' is not supported; allowed: false, true"),
    ({"qkv_bias": True}, "says qkv_bias true, but its tensor layers.0.self_attn.q_proj.bias is missing"),
]


@pytest.mark.parametrize(("change", "words"), BAD_HEADS + BAD_EAGLE3)
def test_an_odd_eagle3_config_is_refused_by_name(target, tmp_path, change, words):
    write_eagle3(tmp_path, eagle3_config(), llama_config())
    (tmp_path / "config.json").write_text(json.dumps(eagle3_config(**change)))
    with pytest.raises(ValueError, match=f"head: .*{_escaped(words)}"):
        load_head(tmp_path, target)


@pytest.mark.parametrize(("change", "words"), BAD_HEADS + BAD_EAGLE1)
def test_an_odd_eagle1_config_is_refused_by_name(target, tmp_path, change, words):
    write_eagle1(tmp_path, eagle1_config())
    (tmp_path / "config.json").write_text(json.dumps(eagle1_config(**change)))
    with pytest.raises(ValueError, match=f"head: .*{_escaped(words)}"):
        load_head(tmp_path, target)
