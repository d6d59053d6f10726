"""EAGLE-3 heads from a checkpoint directory, or with random weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from specbench.harness.engines.native.models.draft_vocab import read_d2t
from specbench.harness.engines.native.models.eagle3 import Eagle3Head, Eagle3Options, Eagle3Weights
from specbench.harness.engines.native.models.eagle_head import DRAFT_FIELD, Placeholder
from specbench.harness.engines.native.models.fused_weights import (
    attention_output,
    down,
    gate_up,
    head_norm,
    lm_head_of,
    qkv,
    single,
)
from specbench.harness.engines.native.models.head_config import Eagle3Config, read_eagle3_config
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.weights import CheckpointWeights, RandomWeights, WeightSource


def _fc_norms(source: WeightSource, head: Eagle3Config) -> tuple[Tensor, ...]:
    if head.fc_norm:
        return tuple(source.get(f"fc_norm.{i}.weight", (head.target_hidden_size,)) for i in range(head.num_aux))
    if head.norm_before_fc:
        return (source.get("input_norm.weight", (head.num_aux * head.target_hidden_size,)),)
    return ()


def _layer_prefix(source: WeightSource) -> str:
    """Published heads name the layer `midlayer.`; some converters write `layers.0.`."""
    return "layers.0." if source.has("layers.0.hidden_norm.weight") else "midlayer."


def _build_head(head: Eagle3Config, source: WeightSource, target: LlamaModel, d2t: Tensor | None) -> Eagle3Head:
    config, draft_vocab = head.layer, head.draft_vocab_size
    h, feature_size = config.hidden_size, head.num_aux * head.target_hidden_size
    prefix = _layer_prefix(source)
    # The target's own are shared only if they fit.
    own_embed = source.has("embed_tokens.weight") or h != target.config.hidden_size
    shape, embed_VH, embed_group = (target.config.vocab_size, h), target.embed_VH, target.group
    if own_embed:
        embed_VH, embed_group = source.get("embed_tokens.weight", shape, split=0), source.group
    own_lm_head = source.has("lm_head.weight") or (draft_vocab, h) != (
        target.lm_head.out_features,
        target.lm_head.in_features,
    )
    lm_head = lm_head_of(source, "lm_head", draft_vocab, h) if own_lm_head else target.lm_head
    weights = Eagle3Weights(
        fc=single(source, "fc", h, feature_size),
        fc_norms=_fc_norms(source, head),
        embed_norm_H=source.get(f"{prefix}input_layernorm.weight", (h,)),
        hidden_norm_H=source.get(f"{prefix}hidden_norm.weight", (h,)),
        qkv=qkv(source, prefix, config, 2 * h),
        o=attention_output(source, prefix, config),
        post_norm_H=source.get(f"{prefix}post_attention_layernorm.weight", (h,)),
        gate_up=gate_up(source, prefix, config),
        down=down(source, prefix, config),
        head_norm_2D=head_norm(source, prefix, config),
        norm_H=source.get("norm.weight", (h,)),
        lm_head=lm_head,
        embed_VH=embed_VH,
        embed_group=embed_group,
        d2t_Vd=d2t,
    )
    options = Eagle3Options(norm_before_residual=head.norm_before_residual, norm_output=head.norm_output)
    placeholder = None
    if head.placeholder_id is not None:
        placeholder = Placeholder(head.placeholder_id, source.get("mask_hidden", (1, feature_size)))
    return Eagle3Head(
        config.split(source.group.size, DRAFT_FIELD),
        weights,
        options,
        head.own_layers or target.config.aux_layers,
        placeholder,
    )


def _check_head_fits(head: Eagle3Config, target: LlamaModel, head_dir: Path) -> None:
    if head.target_hidden_size != target.config.hidden_size:
        raise ValueError(
            f"head: {head_dir} was trained for hidden_size {head.target_hidden_size}, the target has "
            f"{target.config.hidden_size}"
        )
    if head.layer.vocab_size != target.config.vocab_size:
        raise ValueError(
            f"head: {head_dir} was trained for vocab_size {head.layer.vocab_size}, "
            f"the target has {target.config.vocab_size}"
        )
    if head.aux_layers not in ((), target.config.aux_layers):
        raise ValueError(
            f"head: {head_dir} was trained on the states entering layers {head.aux_layers} "
            f"(eagle_config: eagle_aux_hidden_state_layer_ids, which engines count differently), the target gives "
            f"those entering {target.config.aux_layers}; allowed: these, or the key at the top of config.json"
        )
    if any(layer > target.config.num_layers for layer in head.own_layers):
        raise ValueError(
            f"head: {head_dir} was trained on the states entering layers {head.own_layers} "
            f"(eagle_aux_hidden_state_layer_ids), the target has {target.config.num_layers} layers"
        )


def load_eagle3(head_dir: Path, target: LlamaModel) -> Eagle3Head:
    """An EAGLE-3 head in the published format. Raises ValueError naming what does not fit the target."""
    config = read_eagle3_config(head_dir)
    _check_head_fits(config, target, head_dir)
    source = CheckpointWeights(head_dir, target.dtype, target.device, target.group.of_drafter)
    if not source.has("fc.weight"):
        raise ValueError(f"head: {head_dir} has no tensor fc.weight; is it an EAGLE-3 head?")
    d2t = read_d2t(source, config.draft_vocab_size, config.layer.vocab_size, head_dir)
    head = _build_head(config, source, target, d2t)
    source.check_all_read()
    return head


def dummy_eagle3(
    target: LlamaModel, draft_vocab_size: int, seed: int = 1, placeholder_id: int | None = None
) -> Eagle3Head:
    """A head of the target's width with random weights, for speed figures with forced acceptance."""
    c = target.whole
    config = Eagle3Config(
        layer=replace(c, num_layers=1, qkv_bias=False, o_bias=False, qk_norm=False, fp8=None, experts=None),
        draft_vocab_size=draft_vocab_size,
        target_hidden_size=c.hidden_size,
        placeholder_id=placeholder_id,
    )
    d2t = torch.zeros(draft_vocab_size, dtype=torch.int64, device=target.device)
    source = RandomWeights(seed, target.dtype, target.device, target.group.of_drafter)
    return _build_head(config, source, target, d2t if draft_vocab_size < c.vocab_size else None)
