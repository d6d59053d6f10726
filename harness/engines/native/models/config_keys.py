"""Every key of a config.json that this engine knows: its allowed values, and whether it changes the model.

A key that is missing here may change what the model computes, so it is refused by name. A null key counts as absent.
The keys are those of transformers' Llama, Mistral, Qwen2 and Qwen3 (those of experts: experts_config.py), and of EAGLE
heads as published by SafeAILab, vLLM and SGLang.
"""

from __future__ import annotations

from specbench.harness.engines.native.models.config_rules import (
    Empty,
    Harmless,
    ListOf,
    Nested,
    NoModelCode,
    OneOf,
    Positive,
    Rule,
    Whole,
)

FLAG = OneOf((False, True))
_OFF, _ON, _ONE, _FULL = OneOf((False,)), OneOf((True,)), OneOf((1,)), OneOf(("full_attention",))
_WIDTH = Whole(1, 2**20)
_HARMLESS = dict.fromkeys(
    (
        # what wrote the file, and how others would load it
        "torch_dtype dtype transformers_version transformers.js_config tokenizer_class unsloth_fixed unsloth_version "
        "attn_implementation use_cache use_flash_attn use_bfloat16 torchscript return_dict output_attentions "
        "output_hidden_states gradient_checkpointing chunk_size_feed_forward tf_legacy_loss is_llama_config is_decoder "
        # training
        "initializer_range attention_dropout hidden_dropout resid_pdrop embd_pdrop ignore_index "
        # the same products in another order
        "pretraining_tp "
        # tokens and lengths that the tokenizer, the prompts or the options of a run decide
        "bos_token_id pad_token_id unk_token_id sep_token_id decoder_start_token_id prefix model_max_length "
        "max_sequence_length tokenizer_model_max_length seq_length "
        # generation: a run states its own
        "do_sample temperature top_p top_k typical_p min_length max_length max_new_tokens num_beams "
        "num_return_sequences repetition_penalty length_penalty no_repeat_ngram_size early_stopping "
        # other tasks than the next token
        "id2label label2id num_labels finetuning_task task_specific_params problem_type cross_attention_hidden_size "
        "tie_encoder_decoder "
        # Qwen: means something with use_sliding_window alone
        "max_window_layers"
    ).split(),
    Harmless(),
)

ROPE_KEYS: dict[str, Rule] = {
    "rope_type": OneOf(("default", "llama3", "yarn")),
    "type": OneOf(("default", "llama3", "yarn")),
    "rope_theta": Positive(1e12),
    "partial_rotary_factor": _ONE,
}
_SCALED_KEYS: dict[str, Rule] = {
    **ROPE_KEYS,
    "factor": Positive(1e6),
    "original_max_position_embeddings": Whole(1, 2**31),
}
SCALING_KEYS: dict[str, dict[str, Rule]] = {
    "llama3": {**_SCALED_KEYS, "low_freq_factor": Positive(1e6), "high_freq_factor": Positive(1e6)},
    "yarn": {
        **_SCALED_KEYS,
        **dict.fromkeys(("beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim"), Positive(1e6)),
        "truncate": FLAG,
    },
}
_ANY_ROPE = Nested(SCALING_KEYS["llama3"] | SCALING_KEYS["yarn"])  # those of one type are checked again

_LAYER_KEYS: dict[str, Rule] = {
    **_HARMLESS,
    # used
    "hidden_size": _WIDTH,
    "intermediate_size": Whole(1, 2**24),
    "num_attention_heads": Whole(1, 2**16),
    "num_key_value_heads": Whole(1, 2**16),
    "head_dim": Whole(2, 2**16),
    "vocab_size": Whole(1, 2**26),
    "rms_norm_eps": Positive(1.0),
    "rope_theta": Positive(1e12),
    "rope_scaling": _ANY_ROPE,
    "rope_parameters": _ANY_ROPE,
    "max_position_embeddings": Whole(1, 2**31),
    "attention_bias": FLAG,
    "tie_word_embeddings": FLAG,
    # where the model differs, only the value that this engine computes
    "hidden_act": OneOf(("silu", "swish")),
    "activation": OneOf(("silu", "swish", "swiglu")),
    "mlp_bias": _OFF,
    "use_mrope": _OFF,
    "use_qk_norm": _OFF,
    "qk_layernorm": _OFF,
    "rope_interleaved": _OFF,
    "is_encoder_decoder": _OFF,
    "add_cross_attention": _OFF,
    "partial_rotary_factor": _ONE,
    "logit_scale": _ONE,
    "logits_scaling": _ONE,
    "embedding_multiplier": _ONE,
    "residual_multiplier": _ONE,
    "layer_types": ListOf(_FULL),
    "sliding_window": Whole(0, 2**31),
    "use_sliding_window": FLAG,
    "pruned_heads": Empty(),
    "auto_map": NoModelCode(),
}

_TOKEN_ID = Whole(0, 2**31)
TARGET_KEYS: dict[str, Rule] = {
    **_LAYER_KEYS,
    "num_hidden_layers": Whole(1, 10_000),
    "eos_token_id": ListOf(_TOKEN_ID, or_one=True),
    "bias": _OFF,
}

# A head's own word for these is not needed: its tensors and its target decide.
_HEAD_KEYS: dict[str, Rule] = {
    **_LAYER_KEYS,
    "num_hidden_layers": _ONE,
    "draft_vocab_size": Whole(1, 2**26),
    "eos_token_id": Harmless(),
    "target_model_type": Harmless(),
    "target_model_name_or_path": Harmless(),
}
EAGLE1_KEYS: dict[str, Rule] = {**_HEAD_KEYS, "bias": FLAG, "qkv_bias": FLAG}
_AUX_LAYERS = ListOf(Whole(0, 10_000))
EAGLE_CONFIG_KEYS: dict[str, Rule] = {
    "eagle_aux_hidden_state_layer_ids": _AUX_LAYERS,
    "norm_before_fc": FLAG,
    "use_aux_hidden_state": _ON,
    "use_input_layernorm_in_first_layer": _ON,
    "use_last_layernorm": _ON,
    "use_mtp_layernorm": _OFF,
    "has_lm_head": Harmless(),
    "parallel_draft_step": _ONE,
    "parallel_draft_heads_num_layers": Harmless(),
}
EAGLE3_KEYS: dict[str, Rule] = {
    **_HEAD_KEYS,
    "target_hidden_size": _WIDTH,
    "num_aux_hidden_states": Whole(1, 10_000),
    "fc_norm": FLAG,
    "norm_before_fc": FLAG,
    "norm_before_residual": FLAG,
    "norm_output": FLAG,
    "bias": _OFF,
    "eagle_aux_hidden_state_layer_ids": _AUX_LAYERS,
    "eagle_config": Nested(EAGLE_CONFIG_KEYS),
    "ptd_token_id": _TOKEN_ID,  # for heads that draft all tokens in one pass
}
# vllm-project/speculators: the layer's config is nested under a key, next to the head's own keys.
SPECULATORS_KEYS: dict[str, Rule] = {
    **_HARMLESS,
    "speculators_model_type": OneOf(("eagle3",)),
    "speculators_version": Harmless(),
    "speculators_config": Harmless(),
    "transformer_layer_config": Nested({**_HEAD_KEYS, "architectures": Harmless(), "model_type": Harmless()}),
    "has_no_defaults_at_init": Harmless(),
    "embed_requires_grad": Harmless(),
    "tie_word_embeddings": FLAG,
    "auto_map": NoModelCode(),
    **{
        key: EAGLE3_KEYS[key]
        for key in (
            "draft_vocab_size target_hidden_size eagle_aux_hidden_state_layer_ids norm_before_fc fc_norm "
            "norm_before_residual norm_output is_encoder_decoder add_cross_attention pruned_heads"
        ).split()
    },
}
