"""EAGLE-1 heads from a checkpoint directory (`model.safetensors` or an older `pytorch_model.bin`) or random weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import Tensor

from specbench.harness.engines.native.models.config import ModelConfig, read_config, size_of
from specbench.harness.engines.native.models.draft_vocab import read_d2t
from specbench.harness.engines.native.models.eagle1 import Eagle1Head
from specbench.harness.engines.native.models.eagle_head import HeadWeights
from specbench.harness.engines.native.models.fused_weights import attention_output, down, gate_up, qkv, single
from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.weights import (
    UNREAD_EAGLE1,
    CheckpointWeights,
    RandomWeights,
    WeightSource,
)
from specbench.workloads.json_values import JsonObject

_LAYER = "layers.0."


def _build(
    config: ModelConfig,
    source: WeightSource,
    target: LlamaModel,
    fc_bias: bool,
    lm_head: Linear,
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
        lm_head=lm_head,
        embed_VH=target.embed_VH,
        d2t_Vd=d2t_Vd,
    )
    return Eagle1Head(config, weights)


def _check_fits(config: ModelConfig, target: LlamaModel, head_dir: Path) -> None:
    for name in ("hidden_size", "vocab_size"):
        trained, has = getattr(config, name), getattr(target.config, name)
        if trained != has:
            raise ValueError(f"head: {head_dir} was trained for {name} {trained}, the target has {has}")


def _fc_bias(raw: JsonObject, source: CheckpointWeights, head_dir: Path) -> bool:
    """Published configs without the key `bias` mean true; the file must agree."""
    said, found = bool(raw.get("bias", True)), source.has("fc.bias")
    if said != found:
        raise ValueError(
            f"head: config.json of {head_dir} says bias {str(said).lower()} (absent means true), but its tensor "
            f"fc.bias is {'there' if found else 'missing'}; set bias to {str(found).lower()} if the tensors are right"
        )
    return found


def _lm_head(
    raw: JsonObject, source: CheckpointWeights, target: LlamaModel, head_dir: Path
) -> tuple[Linear, Tensor | None]:
    """The target's own, or for a reduced vocabulary the file's rows with their map `d2t`."""
    vocab = target.config.vocab_size
    draft_vocab = size_of(raw, "draft_vocab_size", vocab)
    d2t_Vd = read_d2t(source, draft_vocab, vocab, head_dir)
    if d2t_Vd is None:
        return target.lm_head, None
    return single(source, "lm_head", draft_vocab, target.config.hidden_size), d2t_Vd


def load_eagle1(head_dir: Path, target: LlamaModel) -> Eagle1Head:
    """An EAGLE-1 head in the published format. Raises ValueError naming what does not fit the target."""
    config, raw = read_config(head_dir)
    _check_fits(config, target, head_dir)
    source = CheckpointWeights(head_dir, target.dtype, target.device)
    if not source.has("fc.weight"):
        raise ValueError(f"head: {head_dir} has no tensor fc.weight; is it an EAGLE-1 head?")
    if source.has(f"{_LAYER}input_layernorm.weight"):
        raise ValueError(f"head: {head_dir} has {_LAYER}input_layernorm.weight, which no EAGLE-1 head has")
    # Heads of Qwen2 targets carry biases whatever architecture their config names.
    has_bias = source.has(f"{_LAYER}self_attn.q_proj.bias")
    config = replace(config, num_layers=1, qkv_bias=has_bias)
    lm_head, d2t_Vd = _lm_head(raw, source, target, head_dir)
    head = _build(config, source, target, _fc_bias(raw, source, head_dir), lm_head, d2t_Vd)
    source.check_all_read(UNREAD_EAGLE1)
    return head


def dummy_eagle1(target: LlamaModel, seed: int = 1) -> Eagle1Head:
    """A head of the target's width with random weights, for speed figures with forced acceptance."""
    config = replace(target.config, num_layers=1, qkv_bias=False, o_bias=False)
    source = RandomWeights(seed, target.dtype, target.device)
    return _build(config, source, target, fc_bias=False, lm_head=target.lm_head, d2t_Vd=None)
