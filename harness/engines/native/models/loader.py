"""Targets from a checkpoint directory or from random weights of a published shape."""

from __future__ import annotations

from pathlib import Path

import torch

from specbench.harness.engines.native.models.config import ModelConfig, read_config
from specbench.harness.engines.native.models.fused_weights import attention_output, down, gate_up, qkv
from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.llama import DecoderLayer, LlamaModel
from specbench.harness.engines.native.models.shapes import published_shape
from specbench.harness.engines.native.models.weights import CheckpointWeights, RandomWeights, WeightSource


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
