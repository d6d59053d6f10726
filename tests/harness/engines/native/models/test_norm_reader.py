"""Norms that are left to the products around them: which ones, and that a pass computes the same."""

import pytest
import torch

from specbench.harness.engines.native.models import linear
from specbench.harness.engines.native.models.forward import run_pieces
from specbench.harness.engines.native.models.loader import dummy_target
from specbench.kernels import deferred_norm
from specbench.kernels.deferred_norm import AddNorm, DeferredNorm, Part


@pytest.fixture
def target(monkeypatch):
    monkeypatch.setattr(linear, "pack", lambda weight: None)
    monkeypatch.setattr(linear, "_can_pack", lambda weight: False)
    return dummy_target("toy", torch.float32, torch.device("cpu"))


class Deferring:
    """Products that take norms, in torch; notes what each is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, takes: set[Part]):
        self.takes, self.added, self.read = takes, 0, []
        for name in ("bulk_tiles", "bulk_add", "bulk_linear", "bulk_gated"):
            monkeypatch.setattr(linear, name, getattr(self, name))

    def bulk_tiles(self, x, weight, is_gated=False, part=Part.NONE):
        return "tiles" if part in self.takes else None

    def bulk_add(self, x, weight, bias, tiles, norm: AddNorm) -> DeferredNorm:
        self.added += 1
        return deferred_norm.add_ref(x @ weight.T, norm, 16)

    def bulk_linear(self, x: DeferredNorm, weight, bias, tiles):
        self.read.append("linear")
        return x.rows_TH @ weight.T * deferred_norm.scales_ref(x)

    def bulk_gated(self, x: DeferredNorm, weight, tiles):
        self.read.append("gated")
        gate, up = (x.rows_TH @ weight.T * deferred_norm.scales_ref(x)).chunk(2, dim=1)
        return torch.nn.functional.silu(gate) * up


def run(target) -> torch.Tensor:
    """Attention sees its own values only."""
    c = target.config
    q, kv = c.num_q_heads * c.head_dim, c.num_kv_heads * c.head_dim

    def attend(layer: int, qkv_TX: torch.Tensor) -> torch.Tensor:
        values = qkv_TX[:, q + kv :].view(len(qkv_TX), c.num_kv_heads, c.head_dim)
        return values.repeat_interleave(c.num_q_heads // c.num_kv_heads, dim=1).flatten(1)

    return run_pieces(target.pieces(torch.tensor([3, 7, 11])), attend)


def test_all_norms_but_the_first_and_the_last_are_left_to_products(target, monkeypatch):
    expected = run(target)
    deferring = Deferring(monkeypatch, {Part.ADDS, Part.SCALES})
    torch.testing.assert_close(run(target), expected)
    layers = len(target.layers)
    assert layers > 1 and deferring.added == 2 * layers - 1
    assert deferring.read == ["gated", *["linear", "gated"] * (layers - 1)]


@pytest.mark.parametrize("takes", [Part.ADDS, Part.SCALES])
def test_a_norm_needs_both_products(takes, target, monkeypatch):
    expected = run(target)
    deferring = Deferring(monkeypatch, {takes})
    assert torch.equal(run(target), expected) and not deferring.added and not deferring.read
