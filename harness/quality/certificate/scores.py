"""The target's own fp32 scores of a text, from plain dense passes: the standard for an engine's tokens.

Legend: T tokens of a text, R its output tokens, V vocabulary, I inputs of a layer.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from specbench.harness.engines.base import Engine
from specbench.harness.engines.native.adapter import NativeEngine
from specbench.harness.engines.native.models.decoder_layer import DecoderLayer
from specbench.harness.engines.native.models.forward import ForwardBatch, KVCache
from specbench.harness.engines.native.models.fp8_linear import Product
from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.mlp import DenseMlp, Experts, Mlp
from specbench.kernels.attention.torch_attention import TorchAttention
from specbench.kernels.philox import PURPOSE_SAMPLE, uniform
from specbench.kernels.sample import gumbel_ref


def target_of(engine: Engine) -> LlamaModel:
    """The target loaded by our own engine. ValueError for another engine, whose weights cannot be read."""
    if not isinstance(engine, NativeEngine):
        raise ValueError(f"engine: a certificate needs the target's own scores, which {engine.name} does not give")
    return engine.target.model


def has_weights(engine: Engine) -> bool:
    """Whether the target's own weights are available, which judge better than scores reported by an engine."""
    return isinstance(engine, NativeEngine)


def fp32_twin(target: LlamaModel) -> LlamaModel:
    """The same weights, multiplied in fp32; `target` itself if it is already fp32."""
    if target.dtype == torch.float32:
        return target
    layers = [
        DecoderLayer(
            input_norm=layer.input_norm.float(),
            qkv=_wide_linear(layer.qkv, target),
            o=_wide_linear(layer.o, target),
            post_norm=layer.post_norm.float(),
            mlp=_wide_mlp(layer.mlp, target),
            head_norm_2D=None if layer.head_norm_2D is None else layer.head_norm_2D.float(),
        )
        for layer in target.layers
    ]
    head = _wide_linear(target.lm_head, target)
    return LlamaModel(target.config, target.embed_VH.float(), layers, target.norm_H.float(), head)


def _wide_mlp(mlp: Mlp, target: LlamaModel) -> Mlp:
    if isinstance(mlp, Experts):
        return mlp.in_fp32(_wide_linear(mlp.router, target))
    return DenseMlp(_wide_linear(mlp.gate_up, target), _wide_linear(mlp.down, target))


def _wide_linear(weight: Product, target: LlamaModel) -> Linear:
    bias_O = None if weight.bias is None else weight.bias.float()
    if not isinstance(weight, Linear):
        return Linear(weight.widened(), bias_O)
    # A packed weight cannot be read, but its product with the identity is the weight, without rounding.
    bare = copy.copy(weight)
    bare.bias = None
    eye_II = torch.eye(weight.in_features, dtype=target.dtype, device=target.device)
    return Linear(bare(eye_II).t().float().contiguous(), bias_O)


def output_logits(target: LlamaModel, prompt: Sequence[int], output: Sequence[int], rows: int | None = None) -> Tensor:
    """fp32 [R, V]: the logits that predict each output token after its own text. The prompt is one pass; the output
    follows with `rows` rows per pass, or all at once if None."""
    ids = [*prompt, *output[:-1]]
    starts = [0] if rows is None else [0, *range(len(prompt), len(ids), rows)]
    c, device = target.config, target.device
    shape = (1, len(ids), c.num_kv_heads, c.head_dim)
    caches = [KVCache(*(torch.zeros(shape, dtype=target.dtype, device=device) for _ in "kv")) for _ in target.layers]
    attention = target.attention(TorchAttention(), len(ids))
    hidden = []
    for start, stop in pairwise([*starts, len(ids)]):
        batch = ForwardBatch.of_one_request(ids[start:stop], start, device)
        hidden.append(target.forward(batch, attention, caches).clone())
    return target.logits(torch.cat(hidden)[len(prompt) - 1 :]).float()


def decisive_scores(logits_RV: Tensor, first_position: int, temperature: float, seed: int) -> Tensor:
    """fp32 [R, V], in logits: the values of which the sampler takes the argmax. Row r is for position `first_position +
    r`.

    Greedy: the logits. Sampled: logits + temperature * Gumbel noise, keyed by (seed, position) as in kernels/sample.py.
    """
    if temperature == 0:
        return logits_RV
    position_R = torch.arange(first_position, first_position + len(logits_RV), device=logits_RV.device)
    seed_R = torch.full_like(position_R, seed)
    return logits_RV + temperature * gumbel_ref(uniform(seed_R, position_R, PURPOSE_SAMPLE, logits_RV.shape[1]))


def regrets(scores_RV: Tensor, token_R: Tensor) -> Tensor:
    """[R]: how far each token is below the best one of its position, in logits."""
    return scores_RV.amax(dim=1) - scores_RV.gather(1, token_R.unsqueeze(1)).squeeze(1)
