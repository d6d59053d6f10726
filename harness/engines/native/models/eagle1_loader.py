"""EAGLE-1 heads from a checkpoint directory (`model.safetensors` or an older `pytorch_model.bin`) or random weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import Tensor

from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.engines.native.models.draft_vocab import read_d2t
from specbench.harness.engines.native.models.eagle1 import Eagle1Head
from specbench.harness.engines.native.models.eagle_head import DRAFT_FIELD, HeadWeights
from specbench.harness.engines.native.models.fp8_linear import Product
from specbench.harness.engines.native.models.fused_weights import (
    attention_output,
    down,
    gate_up,
    head_norm,
    lm_head_of,
    qkv,
    single,
)
from specbench.harness.engines.native.models.head_config import Eagle1Config, read_eagle1_config
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.weights import (
    UNREAD_EAGLE1,
    CheckpointWeights,
    RandomWeights,
    WeightSource,
)

_LAYER = "layers.0."


def _build(
    config: ModelConfig,
    source: WeightSource,
    target: LlamaModel,
    fc_bias: bool,
    lm_head: Product,
    d2t_Vd: Tensor | None,
) -> Eagle1Head:
    h = config.hidden_size
    weights = HeadWeights(
        fc=single(source, "fc", h, 2 * h, fc_bias),
        qkv=qkv(source, _LAYER, config, h),
        o=attention_output(source, _LAYER, config),
        post_norm_H=source.get(f"{_LAYER}post_attention_layernorm.weight", (h,)),
        gate_up=gate_up(source, _LAYER, config),
        down=down(source, _LAYER, config),
        head_norm_2D=head_norm(source, _LAYER, config),
        lm_head=lm_head,
        embed_VH=target.embed_VH,
        embed_group=target.group,
        d2t_Vd=d2t_Vd,
    )
    return Eagle1Head(config.split(source.group.size, DRAFT_FIELD), weights)


def _check_fits(config: ModelConfig, target: LlamaModel, head_dir: Path) -> None:
    for name in ("hidden_size", "vocab_size"):
        trained, has = getattr(config, name), getattr(target.config, name)
        if trained != has:
            raise ValueError(f"head: {head_dir} was trained for {name} {trained}, the target has {has}")


def _check_biases(config: Eagle1Config, source: CheckpointWeights, head_dir: Path) -> None:
    """The config must match the file; if absent, `bias` means true and `qkv_bias` is not checked."""
    fc, qkv_bias = source.has("fc.bias"), source.has(f"{_LAYER}self_attn.q_proj.bias")
    if config.fc_bias != fc:
        raise ValueError(
            f"head: config.json of {head_dir} says bias {str(config.fc_bias).lower()} (absent means true), but its "
            f"tensor fc.bias is {'there' if fc else 'missing'}; set bias to {str(fc).lower()} if the tensors are right"
        )
    if config.qkv_bias not in (None, qkv_bias):
        raise ValueError(
            f"head: config.json of {head_dir} says qkv_bias {str(config.qkv_bias).lower()}, but its tensor "
            f"{_LAYER}self_attn.q_proj.bias is {'there' if qkv_bias else 'missing'}"
        )


def _lm_head(
    draft_vocab: int, source: CheckpointWeights, target: LlamaModel, head_dir: Path
) -> tuple[Product, Tensor | None]:
    """The target's own, or for a reduced vocabulary the file's rows with their map `d2t`."""
    d2t_Vd = read_d2t(source, draft_vocab, target.config.vocab_size, head_dir)
    if d2t_Vd is None:
        return target.lm_head, None
    return lm_head_of(source, "lm_head", draft_vocab, target.config.hidden_size), d2t_Vd


def load_eagle1(head_dir: Path, target: LlamaModel) -> Eagle1Head:
    """An EAGLE-1 head in the published format. Raises ValueError naming what does not fit the target."""
    config = read_eagle1_config(head_dir)
    _check_fits(config.layer, target, head_dir)
    source = CheckpointWeights(head_dir, target.dtype, target.device, target.group.of_drafter)
    if not source.has("fc.weight"):
        raise ValueError(f"head: {head_dir} has no tensor fc.weight; is it an EAGLE-1 head?")
    if source.has(f"{_LAYER}input_layernorm.weight"):
        raise ValueError(f"head: {head_dir} has {_LAYER}input_layernorm.weight, which no EAGLE-1 head has")
    _check_biases(config, source, head_dir)
    # Heads of Qwen2 targets carry biases whatever architecture their config names.
    layer = replace(config.layer, qkv_bias=source.has(f"{_LAYER}self_attn.q_proj.bias"))
    lm_head, d2t_Vd = _lm_head(config.draft_vocab_size, source, target, head_dir)
    head = _build(layer, source, target, config.fc_bias, lm_head, d2t_Vd)
    source.check_all_read(UNREAD_EAGLE1)
    return head


def dummy_eagle1(target: LlamaModel, seed: int = 1) -> Eagle1Head:
    """A head of the target's width with random weights, for speed figures with forced acceptance."""
    config = replace(target.whole, num_layers=1, qkv_bias=False, o_bias=False, qk_norm=False, fp8=None, experts=None)
    source = RandomWeights(seed, target.dtype, target.device, target.group.of_drafter)
    return _build(config, source, target, fc_bias=False, lm_head=target.lm_head, d2t_Vd=None)
