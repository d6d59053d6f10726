"""Targets from a checkpoint directory or from random weights of a published shape."""

from __future__ import annotations

from pathlib import Path

import torch

from specbench.harness.engines.native.models.config import ModelConfig, read_config
from specbench.harness.engines.native.models.decoder_layer import DecoderLayer
from specbench.harness.engines.native.models.expert_weights import read_layer_experts
from specbench.harness.engines.native.models.fp8_weights import Fp8Checkpoint, Fp8Random
from specbench.harness.engines.native.models.fused_weights import (
    attention_output,
    down,
    gate_up,
    head_norm,
    lm_head_of,
    qkv,
)
from specbench.harness.engines.native.models.group import ALONE, Group
from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.mlp import DenseMlp, Mlp
from specbench.harness.engines.native.models.quantization import BLOCK
from specbench.harness.engines.native.models.shapes import published_shape
from specbench.harness.engines.native.models.split_linear import gathered
from specbench.harness.engines.native.models.weights import CheckpointWeights, RandomWeights, WeightSource


def _decoder_layer(source: WeightSource, index: int, c: ModelConfig) -> DecoderLayer:
    prefix = f"model.layers.{index}."
    return DecoderLayer(
        input_norm=source.get(f"{prefix}input_layernorm.weight", (c.hidden_size,)),
        qkv=qkv(source, prefix, c, c.hidden_size),
        o=attention_output(source, prefix, c),
        post_norm=source.get(f"{prefix}post_attention_layernorm.weight", (c.hidden_size,)),
        mlp=_mlp(source, prefix, index, c),
        head_norm_2D=head_norm(source, prefix, c),
    )


def _mlp(source: WeightSource, prefix: str, index: int, c: ModelConfig) -> Mlp:
    if c.experts is not None and c.experts.has(index):
        return read_layer_experts(source, prefix, c, c.experts)
    return DenseMlp(gate_up(source, prefix, c), down(source, prefix, c))


def _build_target(config: ModelConfig, source: WeightSource) -> LlamaModel:
    group, shape = source.group, (config.vocab_size, config.hidden_size)
    embed_VH = source.get("model.embed_tokens.weight", shape, split=0)
    layers = [_decoder_layer(source, i, config) for i in range(config.num_layers)]
    norm_H = source.get("model.norm.weight", (config.hidden_size,))
    tied = config.tie_word_embeddings
    head = gathered(Linear(embed_VH), group) if tied else lm_head_of(source, "lm_head", *shape)
    return LlamaModel(config, embed_VH, layers, norm_H, head, group)


def check_split(config: ModelConfig, num_ranks: int) -> None:
    """ValueError, before anything is read, for a model that this number of ranks cannot share."""
    part = config.split(num_ranks)
    if num_ranks == 1 or part.fp8 is None or part.fp8.scales != "block":
        return
    sizes = {
        "num_attention_heads times head_dim": part.num_q_heads * part.head_dim,
        "num_key_value_heads times head_dim": part.num_kv_heads * part.head_dim,
    }
    if any(part.experts is None or not part.experts.has(layer) for layer in range(part.num_layers)):
        sizes["intermediate_size"] = part.intermediate_size
    if part.experts is not None:
        sizes["moe_intermediate_size"] = part.experts.intermediate_size
    for key, size in sizes.items():
        if size % BLOCK:
            raise ValueError(
                f"tensor_parallel_size: {num_ranks} is not allowed; {key} is {size * num_ranks}, and a rank's part of "
                f"it must have whole blocks of {BLOCK}, which share an FP8 scale; allowed: numbers of ranks that leave "
                f"a multiple of {BLOCK}"
            )


def _check_tied(source: CheckpointWeights) -> None:
    """A tied model's own lm_head must be a copy, because engines differ in which of two they would use."""
    if not source.has("lm_head.weight"):
        return
    lm_head_VH, embed_VH = source.raw("lm_head.weight"), source.raw("model.embed_tokens.weight")
    if lm_head_VH.dtype != embed_VH.dtype or not torch.equal(lm_head_VH, embed_VH):
        raise ValueError(
            f"checkpoint: lm_head.weight in {source.model_dir} is not model.embed_tokens.weight, although config.json "
            "says tie_word_embeddings true; set it to false if lm_head.weight is right, or remove that tensor"
        )


def _checkpoint(
    model_dir: Path, config: ModelConfig, dtype: torch.dtype, device: torch.device, group: Group
) -> CheckpointWeights:
    check_split(config, group.size)
    if config.fp8 is not None:
        return Fp8Checkpoint(model_dir, dtype, device, config.fp8, group)
    return CheckpointWeights(model_dir, dtype, device, group)


def load_target(model_dir: Path, dtype: torch.dtype, device: torch.device, group: Group = ALONE) -> LlamaModel:
    """A Hugging Face directory of a model, or this rank's part of it. Raises ValueError naming what does not fit."""
    config, _ = read_config(model_dir)
    source = _checkpoint(model_dir, config, dtype, device, group)
    model = _build_target(config, source)
    if config.tie_word_embeddings:
        _check_tied(source)
    source.check_all_read()
    return model


def dummy_target(
    name: str,
    dtype: torch.dtype,
    device: torch.device,
    seed: int = 0,
    num_layers: int | None = None,
    group: Group = ALONE,
) -> LlamaModel:
    """Random weights of a published shape; with `num_layers`, only its first layers."""
    config = published_shape(name).config
    if num_layers is not None:
        config = config.with_layers(num_layers)
    check_split(config, group.size)
    source = RandomWeights(seed, dtype, device, group)
    if config.fp8 is not None:
        source = Fp8Random(seed, dtype, device, config.fp8, group)
    return _build_target(config, source)
