"""Targets and EAGLE-3 heads from a checkpoint directory or from random weights of a published shape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from .config import ModelConfig, read_config
from .draft_vocab import read_d2t
from .eagle3 import Eagle3Head, Eagle3Options, Eagle3Weights
from .fused_weights import attention_output, down, gate_up, qkv, single
from .linear import Linear
from .llama import DecoderLayer, LlamaModel
from .shapes import published_shape
from .weights import CheckpointWeights, RandomWeights, WeightSource


def _decoder_layer(source: WeightSource, index: int, c: ModelConfig) -> DecoderLayer:
    prefix = f"model.layers.{index}."
    return DecoderLayer(
        input_norm=source.get(f"{prefix}input_layernorm.weight", (c.hidden_size,)),
        qkv=qkv(source, prefix, c, c.hidden_size),
        o=attention_output(source, prefix, c),
        post_norm=source.get(f"{prefix}post_attention_layernorm.weight", (c.hidden_size,)),
        gate_up=gate_up(source, prefix, c),
        down=down(source, prefix, c),
    )


def _build_target(config: ModelConfig, source: WeightSource) -> LlamaModel:
    embed_VH = source.get("model.embed_tokens.weight", (config.vocab_size, config.hidden_size))
    layers = [_decoder_layer(source, i, config) for i in range(config.num_layers)]
    norm_H = source.get("model.norm.weight", (config.hidden_size,))
    head_VH = embed_VH
    if not config.tie_word_embeddings:
        head_VH = source.get("lm_head.weight", (config.vocab_size, config.hidden_size))
    return LlamaModel(config, embed_VH, layers, norm_H, Linear(head_VH))


def _check_tied(source: CheckpointWeights) -> None:
    """A tied model's own lm_head may only be a copy: engines differ in which of two they would use."""
    if not source.has("lm_head.weight"):
        return
    lm_head_VH, embed_VH = source.raw("lm_head.weight"), source.raw("model.embed_tokens.weight")
    if lm_head_VH.dtype != embed_VH.dtype or not torch.equal(lm_head_VH, embed_VH):
        raise ValueError(
            f"checkpoint: lm_head.weight in {source.model_dir} is not model.embed_tokens.weight, although config.json "
            "says tie_word_embeddings true; set it to false if lm_head.weight is right, or remove that tensor"
        )


def load_target(model_dir: Path, dtype: torch.dtype, device: torch.device) -> LlamaModel:
    """A Hugging Face directory of a Llama or Qwen2 model. Raises ValueError naming what does not fit."""
    config, _ = read_config(model_dir)
    source = CheckpointWeights(model_dir, dtype, device)
    model = _build_target(config, source)
    if config.tie_word_embeddings:
        _check_tied(source)
    source.check_all_read()
    return model


def dummy_target(
    name: str, dtype: torch.dtype, device: torch.device, seed: int = 0, num_layers: int | None = None
) -> LlamaModel:
    """Random weights of a published shape; `num_layers` keeps the first layers only."""
    config = published_shape(name).config
    if num_layers is not None:
        config = config.with_layers(num_layers)
    return _build_target(config, RandomWeights(seed, dtype, device))


def _fc_norms(source: WeightSource, raw: dict, num_aux: int, target_hidden: int) -> tuple[Tensor, ...]:
    nested = raw.get("eagle_config") or {}
    if raw.get("fc_norm"):
        return tuple(source.get(f"fc_norm.{i}.weight", (target_hidden,)) for i in range(num_aux))
    if raw.get("norm_before_fc", nested.get("norm_before_fc", False)):
        return (source.get("input_norm.weight", (num_aux * target_hidden,)),)
    return ()


def _layer_prefix(source: WeightSource) -> str:
    """Published heads name the layer `midlayer.`; some converters write `layers.0.`."""
    return "layers.0." if source.has("layers.0.self_attn.q_proj.weight") else "midlayer."


def _build_head(
    config: ModelConfig, raw: dict, source: WeightSource, target: LlamaModel, d2t: Tensor | None
) -> Eagle3Head:
    h = config.hidden_size
    target_hidden = int(raw.get("target_hidden_size") or target.config.hidden_size)
    num_aux = int(raw.get("num_aux_hidden_states") or 3)
    draft_vocab = int(raw.get("draft_vocab_size") or target.config.vocab_size)
    prefix = _layer_prefix(source)
    # The target's own are shared only where they fit.
    own_embed = source.has("embed_tokens.weight") or h != target.config.hidden_size
    embed_VH = source.get("embed_tokens.weight", (target.config.vocab_size, h)) if own_embed else target.embed_VH
    own_lm_head = source.has("lm_head.weight") or (draft_vocab, h) != (
        target.lm_head.out_features,
        target.lm_head.in_features,
    )
    lm_head = single(source, "lm_head", draft_vocab, h) if own_lm_head else target.lm_head
    weights = Eagle3Weights(
        fc=single(source, "fc", h, num_aux * target_hidden),
        fc_norms=_fc_norms(source, raw, num_aux, target_hidden),
        embed_norm_H=source.get(f"{prefix}input_layernorm.weight", (h,)),
        hidden_norm_H=source.get(f"{prefix}hidden_norm.weight", (h,)),
        qkv=qkv(source, prefix, config, 2 * h),
        o=attention_output(source, prefix, config),
        post_norm_H=source.get(f"{prefix}post_attention_layernorm.weight", (h,)),
        gate_up=gate_up(source, prefix, config),
        down=down(source, prefix, config),
        norm_H=source.get("norm.weight", (h,)),
        lm_head=lm_head,
        embed_VH=embed_VH,
        d2t_Vd=d2t,
    )
    options = Eagle3Options(
        norm_before_residual=bool(raw.get("norm_before_residual", False)),
        norm_output=bool(raw.get("norm_output", False)),
    )
    return Eagle3Head(config, weights, options, feature_size=num_aux * target_hidden)


def _check_head_fits(raw: dict, config: ModelConfig, target: LlamaModel, head_dir: Path) -> None:
    wanted = int(raw.get("target_hidden_size") or config.hidden_size)
    if wanted != target.config.hidden_size:
        raise ValueError(
            f"head: {head_dir} was trained for hidden_size {wanted}, the target has {target.config.hidden_size}"
        )
    if config.vocab_size != target.config.vocab_size:
        raise ValueError(
            f"head: {head_dir} was trained for vocab_size {config.vocab_size}, "
            f"the target has {target.config.vocab_size}"
        )
    if (raw.get("num_aux_hidden_states") or 3) != 3:
        raise ValueError(
            f"head: {head_dir} has num_aux_hidden_states {raw['num_aux_hidden_states']}, not supported; allowed: 3"
        )
    layers = (raw.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    if layers is not None and tuple(layers) != target.config.aux_layers:
        raise ValueError(
            f"head: {head_dir} was trained on the states entering layers {tuple(layers)} "
            f"(eagle_aux_hidden_state_layer_ids), the target gives those entering {target.config.aux_layers}"
        )


def load_eagle3(head_dir: Path, target: LlamaModel) -> Eagle3Head:
    """An EAGLE-3 head in the published format. Raises ValueError naming what does not fit the target."""
    config, raw = read_config(head_dir)
    config = replace(config, num_layers=1)
    _check_head_fits(raw, config, target, head_dir)
    source = CheckpointWeights(head_dir, target.dtype, target.device)
    if not source.has("fc.weight"):
        raise ValueError(f"head: {head_dir} has no tensor fc.weight; is it an EAGLE-3 head?")
    draft_vocab = int(raw.get("draft_vocab_size") or config.vocab_size)
    d2t = read_d2t(source, draft_vocab, config.vocab_size, head_dir)
    head = _build_head(config, raw, source, target, d2t)
    source.check_all_read()
    return head


def dummy_eagle3(target: LlamaModel, draft_vocab_size: int, seed: int = 1) -> Eagle3Head:
    """A head of the target's width with random weights, for speed figures with forced acceptance."""
    c = target.config
    raw = {"draft_vocab_size": draft_vocab_size}
    config = replace(c, num_layers=1, qkv_bias=False, o_bias=False)
    d2t = torch.zeros(draft_vocab_size, dtype=torch.int64, device=target.device)
    source = RandomWeights(seed, target.dtype, target.device)
    return _build_head(config, raw, source, target, d2t if draft_vocab_size < c.vocab_size else None)


def dummy_draft_vocab(target_name: str) -> int:
    """Draft vocabulary of the head that goes with a published shape."""
    return published_shape(target_name).draft_vocab_size
