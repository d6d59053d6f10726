"""What follows attention in a layer: one compiled call where it can be, with the bits of its steps."""

from __future__ import annotations

import pytest
import torch
from toy.checkpoints import llama_config, load_written, write_llama

from specbench.harness.engines.native.models import mlp
from specbench.harness.engines.native.models.forward import run_pieces
from specbench.harness.engines.native.models.heads import make_head
from specbench.harness.engines.native.models.linear import Linear
from specbench.kernels.product import pack

BF16 = torch.bfloat16


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    write_llama(folder, llama_config())
    return load_written(folder, dtype=BF16)


@pytest.mark.skipif(pack(torch.zeros(1, 2, dtype=BF16)) is None, reason="no C compiler, or no AVX512-BF16")
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
    monkeypatch.setattr(Linear, "compiled_weight", None)
    stepwise = run()
    assert len(calls) == num_layers and torch.equal(in_one, stepwise)
