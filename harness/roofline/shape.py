"""One forward pass for the roofline: the number of weights that it multiplies by, and the bytes per cached token.

Everything follows from a model's configuration. Embeddings are looked up, not multiplied, and are left out, like norms
and biases (thousands of numbers next to millions). Kernels are counted as in models/llama.py and the heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.engines.native.models.decoder_layer import DecoderLayer
from specbench.harness.engines.native.models.fp8_linear import Product
from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.mlp import Experts, Mlp
from specbench.harness.engines.native.models.split_linear import RowParallel
from specbench.harness.store.roofline_record import ExpertsShape, ForwardShape

# Of a layer: qkv, rope and KV write, attention, o, norm, gate and up, their product, down, norm. Before the layers: the
# embedding and the first norm. Of lm_head: the product, and the token from its logits.
_LAYER_KERNELS, _EMBED_KERNELS, _HEAD_KERNELS = 9, 2, 2
_EXPERT_KERNELS = 3  # more: router, routing, plan, gate and up, down and sum in place of three


def model_shape(config: ModelConfig, number_bytes: int, stored: Stored | None = None) -> ForwardShape:
    """A whole model: a target, or a draft model (`self:N` is the target's `config.with_layers(N)`). `stored`: how its
    layers' weights are read, if not all have `number_bytes`."""
    c, layers = config, range(config.num_layers)
    num_sparse = sum(_has_experts(c, layer) for layer in layers)
    shape = _shape(
        config,
        layer_params=sum(_attention_params(c, c.hidden_size) + _mlp_params(c, layer) for layer in layers),
        vocab_size=config.vocab_size,
        number_bytes=number_bytes,
        num_kernels=_EMBED_KERNELS + _LAYER_KERNELS * config.num_layers + _EXPERT_KERNELS * num_sparse,
    )
    if stored is None:
        return shape
    return replace(shape, layer_bytes=stored.layer_bytes, fast_params=stored.fast_params, experts=stored.experts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """Sizes of the layers of a built model: `layer_bytes` without experts, the rest as in `ForwardShape`."""

    layer_bytes: int
    fast_params: int
    experts: ExpertsShape | None


def stored_of(layers: Sequence[DecoderLayer], number_bytes: int) -> Stored:
    """Scales are left out, like norms and biases."""
    layer_bytes, fast_params, experts = 0, 0, None
    for layer in layers:
        for product in (layer.qkv, layer.o, *_products(layer.mlp)):
            own = product.own if isinstance(product, RowParallel) else product
            size, is_fast = own.in_features * own.out_features, not isinstance(own, Linear)
            layer_bytes += size * (1 if is_fast else number_bytes)
            fast_params += size * is_fast
        if isinstance(layer.mlp, Experts):
            matrices = [w[0] for w in (layer.mlp.weights.gate_up_EXH, layer.mlp.weights.down_EHI)]
            fast_params += sum(layer.mlp.config.per_token * w.numel() for w in matrices if w.element_size() == 1)
            experts = ExpertsShape(
                num_layers=1 + (experts.num_layers if experts else 0),
                num_experts=layer.mlp.config.num_experts,
                expert_bytes=sum(w.numel() * w.element_size() for w in matrices),  # the same in all layers
            )
    return Stored(layer_bytes=layer_bytes, fast_params=fast_params, experts=experts)


def _products(mlp: Mlp) -> tuple[Product, ...]:
    return (mlp.router,) if isinstance(mlp, Experts) else (mlp.gate_up, mlp.down)


def eagle3_shape(config: ModelConfig, draft_vocab_size: int, num_features: int, number_bytes: int) -> ForwardShape:
    """One layer over [embedding, hidden]; `fc` takes the target's `num_features` a row, in the first pass only."""
    return _shape(
        config,
        layer_params=_attention_params(config, 2 * config.hidden_size) + _dense_params(config),
        first_params=num_features * config.hidden_size,
        vocab_size=draft_vocab_size,
        number_bytes=number_bytes,
        num_kernels=_EMBED_KERNELS + 1 + _LAYER_KERNELS,  # the hidden state has a norm of its own
    )


def eagle1_shape(config: ModelConfig, draft_vocab_size: int, number_bytes: int) -> ForwardShape:
    """One layer after `fc` over [embedding, hidden], in every pass."""
    h = config.hidden_size
    return _shape(
        config,
        layer_params=_attention_params(config, h) + _dense_params(config) + 2 * h * h,
        vocab_size=draft_vocab_size,
        number_bytes=number_bytes,
        num_kernels=_EMBED_KERNELS + 1 + _LAYER_KERNELS,
    )


def after_attention_params(c: ModelConfig) -> int:
    """Of a dense layer: o, gate, up and down."""
    return c.num_q_heads * c.head_dim * c.hidden_size + _dense_params(c)


def _attention_params(c: ModelConfig, num_inputs: int) -> int:
    """qkv over `num_inputs`, and o."""
    q, kv = c.num_q_heads * c.head_dim, c.num_kv_heads * c.head_dim
    return num_inputs * (q + 2 * kv) + q * c.hidden_size


def _dense_params(c: ModelConfig) -> int:
    """gate, up and down."""
    return 3 * c.hidden_size * c.intermediate_size


def _has_experts(c: ModelConfig, layer: int) -> bool:
    return c.experts is not None and c.experts.has(layer)


def _mlp_params(c: ModelConfig, layer: int) -> int:
    """For a mixture of experts: the router and the experts that a row takes."""
    if c.experts is None or not c.experts.has(layer):
        return _dense_params(c)
    return c.hidden_size * (c.experts.num_experts + 3 * c.experts.per_token * c.experts.intermediate_size)


def _shape(
    c: ModelConfig, *, layer_params: int, vocab_size: int, number_bytes: int, num_kernels: int, first_params: int = 0
) -> ForwardShape:
    return ForwardShape(
        layer_params=layer_params,
        first_params=first_params,
        head_params=vocab_size * c.hidden_size,
        vocab_size=vocab_size,
        num_layers=c.num_layers,
        num_q_heads=c.num_q_heads,
        num_kv_heads=c.num_kv_heads,
        head_dim=c.head_dim,
        number_bytes=number_bytes,
        num_kernels=num_kernels,
        num_head_kernels=_HEAD_KERNELS,
    )
