"""Norms that are left to the products around them: which ones, and that a pass computes the same."""

import pytest
import torch

from specbench.harness.engines.native.models import linear
from specbench.harness.engines.native.models.all_reduce import Sum
from specbench.harness.engines.native.models.eagle3_loader import dummy_eagle3
from specbench.harness.engines.native.models.forward import run_pieces
from specbench.harness.engines.native.models.fp8_linear import Fp8BlockLinear, Fp8RowLinear
from specbench.harness.engines.native.models.group import Group
from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.loader import dummy_target
from specbench.harness.engines.native.models.norm_reader import NormReader, product_add_rms_norm
from specbench.harness.engines.native.models.split_linear import GatheredLinear, RowParallel
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


def attention(config):
    """Each row's own values."""
    q, kv = config.num_q_heads * config.head_dim, config.num_kv_heads * config.head_dim

    def attend(layer: int, qkv_TX: torch.Tensor) -> torch.Tensor:
        values = qkv_TX[:, q + kv :].view(len(qkv_TX), config.num_kv_heads, config.head_dim)
        return values.repeat_interleave(config.num_q_heads // config.num_kv_heads, dim=1).flatten(1)

    return attend


def run(target, features_TF: torch.Tensor | None = None) -> torch.Tensor:
    return run_pieces(target.pieces(torch.tensor([3, 7, 11]), features_TF), attention(target.config))


BOTH = {Part.ADDS, Part.SCALES}


def test_all_norms_but_the_first_and_the_last_are_left_to_products(target, monkeypatch):
    expected = run(target)
    deferring = Deferring(monkeypatch, BOTH)
    torch.testing.assert_close(run(target), expected)
    layers = len(target.layers)
    assert layers > 1 and deferring.added == 2 * layers - 1
    assert deferring.read == ["gated", *["linear", "gated"] * (layers - 1)]


@pytest.mark.parametrize("takes", [Part.ADDS, Part.SCALES])
def test_a_norm_needs_both_products(takes, target, monkeypatch):
    expected = run(target)
    deferring = Deferring(monkeypatch, {takes})
    assert torch.equal(run(target), expected) and not deferring.added and not deferring.read


def test_aux_layers_see_the_whole_residual(target, monkeypatch):
    layers = len(target.layers)
    target = target.with_aux_layers((0, 1, layers))
    expected, features = (torch.zeros(3, 3 * target.config.hidden_size) for _ in range(2))
    run(target, expected)
    deferring = Deferring(monkeypatch, BOTH)
    run(target, features)
    assert deferring.added and expected.count_nonzero()
    torch.testing.assert_close(features, expected)


@pytest.mark.parametrize("wanted", [None, torch.tensor([0, 2])])
def test_a_head_leaves_the_norm_after_attention_to_its_products(wanted, target, monkeypatch):
    head = dummy_eagle3(target, target.config.vocab_size)
    ids, hidden = torch.tensor([3, 7, 11]), torch.randn(3, head.config.hidden_size)

    def output() -> torch.Tensor:
        return run_pieces(head.pieces(ids, hidden.clone(), wanted), attention(head.config))

    expected = output()
    deferring = Deferring(monkeypatch, BOTH)
    torch.testing.assert_close(output(), expected)
    assert deferring.added == 1 and deferring.read == ["gated"]


HIDDEN = 128


def plain() -> Linear:
    return Linear(torch.randn(HIDDEN, HIDDEN))


def of_two(kind: type) -> Linear:
    return kind(plain(), Group(0, 2, Sum()))


def fp8_rows() -> Fp8RowLinear:
    return object.__new__(Fp8RowLinear)


def fp8_blocks() -> Fp8BlockLinear:
    return object.__new__(Fp8BlockLinear)


@pytest.mark.parametrize("reader", [lambda: of_two(GatheredLinear), fp8_rows, fp8_blocks])
def test_readers_that_take_no_norm(reader, target, monkeypatch):
    Deferring(monkeypatch, BOTH)
    rows = torch.randn(3, HIDDEN)
    assert NormReader(plain()).takes_norm(rows) and NormReader(plain(), is_gated=True).takes_norm(rows)
    assert not NormReader(reader()).takes_norm(rows) and not NormReader(reader(), is_gated=True).takes_norm(rows)


@pytest.mark.parametrize("residual", ["dense", "strided"])
@pytest.mark.parametrize("product", [plain, lambda: of_two(RowParallel)])
def test_only_a_plain_product_adds_to_a_dense_residual(product, residual, target, monkeypatch):
    Deferring(monkeypatch, BOTH)
    rows = torch.randn(3, 2 * HIDDEN)[:, :HIDDEN]
    residual_TH = rows.contiguous() if residual == "dense" else rows
    x = product_add_rms_norm(
        product(), torch.randn(3, HIDDEN), residual_TH, torch.ones(HIDDEN), 1e-5, NormReader(plain())
    )
    assert isinstance(x, DeferredNorm) == (product is plain and residual == "dense")
