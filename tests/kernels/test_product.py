"""Compiled products: the right sums, and the same bits for a row whatever stands beside it."""

from __future__ import annotations

import pytest
import torch

from specbench.kernels import compiled, product
from specbench.kernels.product import after_attention, pack
from specbench.kernels.rms_norm import add_rms_norm, rms_norm
from specbench.kernels.silu_and_mul import silu_and_mul

BF16 = torch.bfloat16
needs_product = pytest.mark.skipif(
    pack(torch.zeros(1, 2, dtype=BF16)) is None, reason="no C compiler, or no AVX512-BF16"
)


def given(rows: int, inputs: int, outputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(rows + inputs + outputs)
    numbers = [torch.randn(n, inputs, generator=drawn).to(BF16) for n in (rows, outputs)]
    return numbers[0], numbers[1]


def packed(weight: torch.Tensor) -> torch.Tensor:
    found = pack(weight)
    assert found is not None
    return found


@needs_product
@pytest.mark.parametrize(("inputs", "outputs"), [(2, 1), (64, 63), (576, 130), (2048, 64), (2050, 65), (5000, 40)])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 40])
def test_sums_are_those_of_double_precision(rows, inputs, outputs):
    x, weight = given(rows, inputs, outputs)
    wanted = x.double() @ weight.double().T
    bias = torch.linspace(-3, 3, outputs, dtype=BF16)
    for out, right in ((_of(x, weight), wanted), (_of(x, weight, bias), wanted + bias.double())):
        step = right.abs() * 2**-8 + inputs**0.5 * 2**-18  # half a step of bfloat16, and fp32 sums
        assert out.shape == (rows, outputs) and ((out.double() - right).abs() <= step).all()


def _of(x, weight, bias=None):
    return product.product(x, packed(weight), weight.shape[0], bias)


@needs_product
@pytest.mark.parametrize("inputs", [576, 4098])
def test_a_row_alone_and_among_others_has_the_same_bits(inputs, monkeypatch):
    x, weight = given(23, inputs, 200)
    whole = _of(x, weight)
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda n=threads: n)
        for rows in (1, 2, 5, 6, 9):
            assert torch.equal(torch.cat([_of(part, weight) for part in x.split(rows)]), whole)
    strided = torch.cat([x, x], dim=1)[:, :inputs]
    assert not strided.is_contiguous() and torch.equal(_of(strided, weight), whole)


@needs_product
def test_what_is_not_finite_stays_so_and_touches_no_other_row():
    x, weight = given(5, 64, 70)
    right = _of(x, weight)
    x[1, 3], x[3, 5] = float("nan"), float("inf")
    out = _of(x, weight)
    assert out[1].isnan().all() and out[3].isinf().all() and torch.equal(out[[0, 2, 4]], right[[0, 2, 4]])


@needs_product
def test_nothing_behind_the_last_output_is_written(monkeypatch):
    x, weight = given(3, 64, 70)
    room = torch.full((4, 70), 7, dtype=BF16)
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda self, *shape: room[:3])
    assert _of(x, weight).data_ptr() == room.data_ptr() and (room[3] == 7).all()


@needs_product
@pytest.mark.parametrize("rows", [1, 5, 23])
@pytest.mark.parametrize(("inputs", "hidden", "intermediate"), [(64, 48, 96), (192, 64, 2304), (576, 576, 1536)])
def test_what_follows_attention_is_bit_by_bit_what_its_steps_are(rows, inputs, hidden, intermediate):
    attn, o = given(rows, inputs, hidden)
    _, gate_up = given(1, hidden, 2 * intermediate)
    _, down = given(1, intermediate, hidden)
    post_norm, next_norm, residuals = (torch.randn(n, hidden).to(BF16) for n in (1, 1, 2 * rows))
    stepwise = residuals[::2].clone()
    x = add_rms_norm(_of(attn, o), stepwise, post_norm[0], 1e-5)
    y = _of(silu_and_mul(_of(x, gate_up)), down)
    weights = [packed(each) for each in (o, gate_up, down)]

    def in_one(next_norm_H):
        own = residuals.clone()[::2]  # rows that lie apart
        out = after_attention(attn, own, weights[0], post_norm[0], *weights[1:], next_norm_H, 1e-5)
        return out, own

    out, own = in_one(None)
    assert torch.equal(out, stepwise + y) and torch.equal(own, stepwise), "the residual has only o's sum"
    out, own = in_one(next_norm[0])
    stepwise += y
    assert torch.equal(own, stepwise) and torch.equal(out, rms_norm(stepwise, next_norm[0], 1e-5))


@pytest.mark.parametrize("weight", [torch.zeros(4, 8), torch.zeros(4, 7, dtype=BF16)], ids=["fp32", "odd"])
def test_what_it_does_not_take(weight):
    assert pack(weight) is None


def test_without_a_compiler_it_takes_nothing(monkeypatch):
    monkeypatch.setattr(compiled, "library", lambda: None)
    assert pack(torch.zeros(4, 8, dtype=BF16)) is None
