"""EAGLE-3 heads from a checkpoint directory, or with random weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from specbench.harness.engines.native.models.config import ModelConfig, read_config, size_of, table_of
from specbench.harness.engines.native.models.draft_vocab import read_d2t
from specbench.harness.engines.native.models.eagle3 import Eagle3Head, Eagle3Options, Eagle3Weights
from specbench.harness.engines.native.models.fused_weights import attention_output, down, gate_up, qkv, single
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.weights import CheckpointWeights, RandomWeights, WeightSource
from specbench.workloads.json_values import JsonObject


def _fc_norms(source: WeightSource, raw: JsonObject, num_aux: int, target_hidden: int) -> tuple[Tensor, ...]:
    nested = table_of(raw, "eagle_config")
    if raw.get("fc_norm"):
        return tuple(source.get(f"fc_norm.{i}.weight", (target_hidden,)) for i in range(num_aux))
    if raw.get("norm_before_fc", nested.get("norm_before_fc", False)):
        return (source.get("input_norm.weight", (num_aux * target_hidden,)),)
    return ()


def _layer_prefix(source: WeightSource) -> str:
    """Published heads name the layer `midlayer.`; some converters write `layers.0.`."""
    return "layers.0." if source.has("layers.0.self_attn.q_proj.weight") else "midlayer."


def _build_head(
    config: ModelConfig, raw: JsonObject, source: WeightSource, target: LlamaModel, d2t: Tensor | None
) -> Eagle3Head:
    h = config.hidden_size
    target_hidden = size_of(raw, "target_hidden_size", target.config.hidden_size)
    num_aux = size_of(raw, "num_aux_hidden_states", 3)
    draft_vocab = size_of(raw, "draft_vocab_size", target.config.vocab_size)
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


def _check_head_fits(raw: JsonObject, config: ModelConfig, target: LlamaModel, head_dir: Path) -> None:
    wanted = size_of(raw, "target_hidden_size", config.hidden_size)
    if wanted != target.config.hidden_size:
        raise ValueError(
            f"head: {head_dir} was trained for hidden_size {wanted}, the target has {target.config.hidden_size}"
        )
    if config.vocab_size != target.config.vocab_size:
        raise ValueError(
            f"head: {head_dir} was trained for vocab_size {config.vocab_size}, "
            f"the target has {target.config.vocab_size}"
        )
    if size_of(raw, "num_aux_hidden_states", 3) != 3:
        raise ValueError(
            f"head: {head_dir} has num_aux_hidden_states {raw['num_aux_hidden_states']}, not supported; allowed: 3"
        )
    layers = table_of(raw, "eagle_config").get("eagle_aux_hidden_state_layer_ids")
    if isinstance(layers, list) and tuple(layers) != target.config.aux_layers:
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
    draft_vocab = size_of(raw, "draft_vocab_size", config.vocab_size)
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
