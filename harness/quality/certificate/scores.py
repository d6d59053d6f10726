"""The target's own fp32 scores of a text, by plain dense passes: what the tokens of an engine are judged by.

Legend: T tokens of a text, R its output tokens, V vocabulary, I inputs of a layer.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from specbench.harness.engines.base import Engine
from specbench.harness.engines.native.adapter import NativeEngine
from specbench.harness.engines.native.models.forward import ForwardBatch, KVCache
from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.llama import DecoderLayer, LlamaModel
from specbench.kernels.attention.torch_attention import TorchAttention
from specbench.kernels.philox import PURPOSE_SAMPLE, uniform
from specbench.kernels.sample import gumbel_ref


def target_of(engine: Engine) -> LlamaModel:
    """The target that an engine of ours has loaded. ValueError for another engine: its weights cannot be read."""
    if not isinstance(engine, NativeEngine):
        raise ValueError(f"engine: a certificate needs the target's own scores, which {engine.name} does not give")
    return engine.target.model


def fp32_twin(target: LlamaModel) -> LlamaModel:
    """The same weights, multiplied in fp32; `target` itself where it is fp32 already."""
    if target.dtype == torch.float32:
        return target
    layers = [_wide_layer(layer) for layer in target.layers]
    return LlamaModel(
        target.config, target.embed_VH.float(), layers, target.norm_H.float(), _wide_linear(target.lm_head)
    )


def _wide_layer(layer: DecoderLayer) -> DecoderLayer:
    return DecoderLayer(
        input_norm=layer.input_norm.float(),
        qkv=_wide_linear(layer.qkv),
        o=_wide_linear(layer.o),
        post_norm=layer.post_norm.float(),
        gate_up=_wide_linear(layer.gate_up),
        down=_wide_linear(layer.down),
    )


def _wide_linear(weight: Linear) -> Linear:
    # A packed weight cannot be read, but its product with the identity is the weight, without rounding.
    bare = copy.copy(weight)
    bare.bias = None
    like = _any_tensor(weight)
    eye_II = torch.eye(weight.in_features, dtype=like.dtype, device=like.device)
    return Linear(bare(eye_II).t().float().contiguous(), None if weight.bias is None else weight.bias.float())


def _any_tensor(weight: Linear) -> Tensor:
    found = weight._weight if weight._weight is not None else weight._packed
    assert found is not None
    return found


def output_logits(target: LlamaModel, prompt: Sequence[int], output: Sequence[int], rows: int | None = None) -> Tensor:
    """fp32 [R, V]: the logits that predict each output token, its own text before it.

    The prompt is one pass; the output follows `rows` rows a pass, all at once where None is given.
    """
    ids = [*prompt, *output[:-1]]
    hidden = [h for _, h in _passes(target, ids, _chunks(len(prompt), len(ids), rows))]
    return target.logits(torch.cat(hidden)[len(prompt) - 1 :]).float()


def _chunks(num_prompt: int, num_tokens: int, rows: int | None) -> list[int]:
    if rows is None:
        return [num_tokens]
    rest = num_tokens - num_prompt
    return [num_prompt, *[rows] * (rest // rows), *([rest % rows] if rest % rows else [])]


def _passes(target: LlamaModel, ids: Sequence[int], chunks: Sequence[int]) -> Iterator[tuple[int, Tensor]]:
    c, device = target.config, target.device
    shape = (1, len(ids), c.num_kv_heads, c.head_dim)
    caches = [KVCache(*(torch.zeros(shape, dtype=target.dtype, device=device) for _ in "kv")) for _ in target.layers]
    attention = target.attention(TorchAttention(), len(ids))
    start = 0
    for size in chunks:
        batch = ForwardBatch.of_one_request(ids[start : start + size], start, device)
        yield start, target.forward(batch, attention, caches).clone()
        start += size
    assert start == len(ids)


def decisive_scores(logits_RV: Tensor, first_position: int, temperature: float, seed: int) -> Tensor:
    """fp32 [R, V], in logits: what the sampler takes the argmax of. Row r is that of position `first_position + r`.

    Greedy: the logits. Sampled: logits + temperature * Gumbel noise, keyed by (seed, position) as in kernels/sample.py.
    """
    if temperature == 0:
        return logits_RV
    position_R = torch.arange(first_position, first_position + len(logits_RV), device=logits_RV.device)
    seed_R = torch.full_like(position_R, seed)
    return logits_RV + temperature * gumbel_ref(uniform(seed_R, position_R, PURPOSE_SAMPLE, logits_RV.shape[1]))


def regrets(scores_RV: Tensor, output: Sequence[int]) -> Tensor:
    """[R]: how far each output token lies below the best token of its position, in logits."""
    token_R1 = torch.tensor(list(output), device=scores_RV.device).unsqueeze(1)
    return scores_RV.amax(dim=1) - scores_RV.gather(1, token_R1).squeeze(1)
