"""One forward pass for the roofline: the number of weights that it multiplies by, and the bytes of a cached token.

Everything follows from a model's configuration; embeddings are looked up, not multiplied, and are left out, as are
norms and biases (thousands of numbers beside millions). Kernels are counted as in models/llama.py and the heads.
"""

from __future__ import annotations

from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.store.roofline_record import ForwardShape

# Of a layer: qkv, rope and KV write, attention, o, norm, gate and up, their product, down, norm. Before the layers: the
# embedding and the first norm. Of lm_head: the product, and the token from its logits.
_LAYER_KERNELS, _EMBED_KERNELS, _HEAD_KERNELS = 9, 2, 2


def model_shape(config: ModelConfig, number_bytes: int) -> ForwardShape:
    """A whole model: a target, or a draft model (`self:N` is the target's `config.with_layers(N)`)."""
    return _shape(
        config,
        layer_params=config.num_layers * _layer_params(config, config.hidden_size),
        vocab_size=config.vocab_size,
        number_bytes=number_bytes,
        num_kernels=_EMBED_KERNELS + _LAYER_KERNELS * config.num_layers,
    )


def eagle3_shape(config: ModelConfig, draft_vocab_size: int, num_features: int, number_bytes: int) -> ForwardShape:
    """One layer over [embedding, hidden]; `fc` takes the target's `num_features` a row, in the first pass only."""
    return _shape(
        config,
        layer_params=_layer_params(config, 2 * config.hidden_size),
        first_params=num_features * config.hidden_size,
        vocab_size=draft_vocab_size,
        number_bytes=number_bytes,
        num_kernels=_EMBED_KERNELS + 1 + _LAYER_KERNELS,  # the hidden state has a norm of its own
    )


def eagle1_shape(config: ModelConfig, draft_vocab_size: int, number_bytes: int) -> ForwardShape:
    """One layer behind `fc` over [embedding, hidden], in every pass."""
    h = config.hidden_size
    return _shape(
        config,
        layer_params=_layer_params(config, h) + 2 * h * h,
        vocab_size=draft_vocab_size,
        number_bytes=number_bytes,
        num_kernels=_EMBED_KERNELS + 1 + _LAYER_KERNELS,
    )


def _layer_params(c: ModelConfig, num_inputs: int) -> int:
    """qkv over `num_inputs`, o, gate, up and down."""
    q, kv = c.num_q_heads * c.head_dim, c.num_kv_heads * c.head_dim
    return num_inputs * (q + 2 * kv) + q * c.hidden_size + 3 * c.hidden_size * c.intermediate_size


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
