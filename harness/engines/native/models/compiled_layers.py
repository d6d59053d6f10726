"""All layers of a target in one compiled call, where its weights, its attention and the rows of a pass allow it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.engines.native.models.decoder_layer import DecoderLayer
from specbench.harness.engines.native.models.forward import Attention, ForwardBatch, KVCache
from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.mlp import DenseMlp
from specbench.kernels import compiled
from specbench.kernels.attention.torch_attention import TorchAttention
from specbench.kernels.layers import MAX_ROWS, Layers, LayerWeights


def compiled_layers(layers: Sequence[DecoderLayer], norm_H: Tensor, config: ModelConfig) -> Layers | None:
    """None if a product of a layer is not compiled, or is shared by a group, or if a layer has experts."""
    norms = [*(layer.input_norm for layer in layers[1:]), norm_H]
    found = []
    for layer, next_norm_H in zip(layers, norms, strict=True):
        mlp = layer.mlp
        if not isinstance(mlp, DenseMlp):
            return None
        products = (layer.qkv, layer.o, mlp.gate_up, mlp.down)
        packed = [product.packed_weight if type(product) is Linear else None for product in products]
        biases = [product.bias if type(product) is Linear else None for product in products]
        qkv, o, gate_up, down = packed
        if qkv is None or o is None or gate_up is None or down is None or biases[1:] != [None] * 3:
            return None
        weights = LayerWeights(qkv, biases[0], layer.head_norm_2D, o, layer.post_norm, gate_up, down, next_norm_H)
        if not Layers.take(weights):
            return None
        found.append(weights)
    return Layers(found, config.num_q_heads, config.num_kv_heads, config.rms_norm_eps)


def takes_pass(batch: ForwardBatch, attention: Attention, caches: Sequence[KVCache], aux_layers: Sequence[int]) -> bool:
    """Whether the compiled layers may take this pass; they decide themselves on what only its lengths tell."""
    k, v = caches[0].k, caches[0].v
    return (
        batch.ids_T.shape[0] <= MAX_ROWS
        and len(batch.parts) == 1
        and type(attention.backend) is TorchAttention
        and k.device.type == "cpu"
        and k.is_contiguous()
        and v.is_contiguous()
        and k.shape[3] <= compiled.WIDEST_HEAD
        and len(set(aux_layers)) == len(aux_layers)
    )


def run_compiled(
    layers: Layers,
    batch: ForwardBatch,
    attention: Attention,
    caches: Sequence[KVCache],
    residual_TH: Tensor,
    normed_TH: Tensor,
    kept: dict[int, Tensor],
) -> Tensor | None:
    """The final-normed states [T, H]; see kernels/layers.py."""
    return layers(
        residual_TH,
        normed_TH,
        [(cache.k, cache.v) for cache in caches],
        kept,
        attention.cos_sin_MD,
        batch.position_T,
        batch.kv_slot_T,
        batch.parts[0].meta,
        attention.scale,
    )
