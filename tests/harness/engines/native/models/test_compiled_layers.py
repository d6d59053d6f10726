"""One compiled call for all layers of a pass or for what follows attention in one, with the bits of its steps."""

from __future__ import annotations

import pytest
import torch
from toy.checkpoints import llama_config, load_written, write_llama

from specbench.harness.engines.native.core.forward import EagerForward
from specbench.harness.engines.native.models import mlp
from specbench.harness.engines.native.models.compiled_layers import compiled_layers
from specbench.harness.engines.native.models.forward import ForwardBatch, KVCache, run_pieces
from specbench.harness.engines.native.models.heads import make_head
from specbench.harness.engines.native.models.linear import Linear
from specbench.kernels.attention.torch_attention import TorchAttention
from specbench.kernels.layers import Layers
from specbench.kernels.product import pack

BF16 = torch.bfloat16


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    write_llama(folder, llama_config())
    return load_written(folder, dtype=BF16)


needs_products = pytest.mark.skipif(
    pack(torch.zeros(1, 2, dtype=BF16)) is None, reason="no C compiler, or no AVX512-BF16"
)


@needs_products
@pytest.mark.parametrize("name", ["target", "random", "random-eagle1"])
def test_a_layer_is_one_call_with_the_same_bits(target, name, monkeypatch):
    calls = []
    whole = mlp.after_attention
    monkeypatch.setattr(mlp, "after_attention", lambda *given: calls.append(1) or whole(*given))
    model = target if name == "target" else make_head(name, target, "eagle")
    inputs = () if name == "target" else (torch.randn(5, 64).to(BF16),)
    num_layers = len(target.layers) if name == "target" else 1

    def run():
        pieces = model.pieces(torch.arange(5), *(each.clone() for each in inputs))
        return run_pieces(pieces, lambda layer, qkv_TX: qkv_TX[:, :64].contiguous())

    in_one = run()
    assert len(calls) == num_layers
    monkeypatch.setattr(Linear, "packed_weight", None)
    stepwise = run()
    assert len(calls) == num_layers and torch.equal(in_one, stepwise)


@needs_products
def test_a_pass_is_one_call_with_the_same_bits(target, monkeypatch):
    calls = []
    whole = Layers.__call__
    monkeypatch.setattr(Layers, "__call__", lambda *given: calls.append(1) or whole(*given))
    model = target.with_aux_layers((0, 1, len(target.layers)))
    c, attention = model.config, model.attention(TorchAttention(), 40)

    def run(sizes):
        shape = (1, 40, c.num_kv_heads, c.head_dim)
        caches = [KVCache(torch.zeros(shape, dtype=BF16), torch.zeros(shape, dtype=BF16)) for _ in model.layers]
        outputs, features, start = [], [], 0
        for size in sizes:
            batch = ForwardBatch.of_one_request(range(start, start + size), start, torch.device("cpu"))
            features.append(torch.full((size, 3 * c.hidden_size), float("nan"), dtype=BF16))
            outputs.append(EagerForward()(model, batch, attention, caches, features_TF=features[-1]))
            start += size
        return torch.cat(outputs), torch.cat(features)

    in_one = run([9, 1, 5, 1])
    assert len(calls) == 4 and all(torch.equal(*pair) for pair in zip(in_one, run([1] * 16), strict=True))
    run([33])
    assert len(calls) == 20, "more rows go layer by layer"
    monkeypatch.delattr(type(model), "_in_one_call")
    monkeypatch.setattr(model, "_compiled", None)
    assert all(torch.equal(*pair) for pair in zip(in_one, run([9, 1, 5, 1]), strict=True))


def test_layers_that_are_not_compiled_are_left_to_their_steps(target, monkeypatch):
    monkeypatch.setattr(Linear, "packed_weight", None)
    assert compiled_layers(target.layers, target.norm_H, target.config) is None
