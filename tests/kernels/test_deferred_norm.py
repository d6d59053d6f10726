"""A norm done by the products before and after it: code that compiles, and on a GPU the sums of a norm between them."""

import pytest
import torch
import torch.nn.functional as F
from kernels.product_cases import CUDA, Hopper, assert_captured_as_in_order, assert_near, gated_ref, operands

from specbench.kernels import bulk_gemm, cuda_source
from specbench.kernels.bulk_gemm import MAX_ROWS, Tiles, bulk_add, bulk_gated, bulk_linear, bulk_tiles, fitting, source
from specbench.kernels.deferred_norm import AddNorm, DeferredNorm, Part, add_ref, scales_ref
from specbench.kernels.rms_norm import rms_norm_ref

EPS, BF16 = 1e-5, torch.bfloat16
LAUNCHES = [
    Tiles(16, 8, 3),
    Tiles(48, 32, 4),
    Tiles(32, 40, 2, 2, 2),
    Tiles(64, 40, 4, 2, 1),
    fitting(96, 48, held=1),
]  # alone and in pairs of blocks
GATED = [Tiles(32, 8, 4), Tiles(48, 32, 4), fitting(112, 40, held=1)]
NUM_PARTS = 256  # of Llama-3.1-8B


@pytest.mark.parametrize("part", [1, 16, 64])
def test_both_halves_are_a_norm(part):
    drawn = torch.Generator().manual_seed(part)
    y, residual, weight = (torch.randn(shape, generator=drawn) for shape in ((5, 64), (5, 64), (64,)))
    expected = rms_norm_ref(y + residual, weight, EPS)
    deferred = add_ref(y, AddNorm(residual.clone(), weight, EPS), part)
    assert deferred.squares_TP.shape == (5, 64 // part)
    torch.testing.assert_close(deferred.rows_TH * scales_ref(deferred), expected)


@pytest.fixture
def hopper(monkeypatch):
    bulk_gemm._met_tiles.cache_clear()
    yield Hopper(monkeypatch)
    bulk_gemm._met_tiles.cache_clear()


def test_rows_that_no_reader_takes_have_norms_of_their_own(hopper):
    x, weight = torch.zeros(5, 512, dtype=BF16), torch.zeros(1000, 512, dtype=BF16)
    assert bulk_tiles(x, weight) is not None and bulk_tiles(x, weight, part=Part.ADDS) is None
    assert bulk_tiles(x, weight[:960], part=Part.ADDS) is not None
    for part in (Part.ADDS, Part.SCALES):
        assert bulk_tiles(x.half(), weight[:960].half(), part=part) is None, "they can exceed fp16's numbers"
    assert {dict(each.constants)["PARTS"] for each in hopper.loaded} == {0, 60}


def test_what_reads_is_compiled_ahead_for_what_is_written(hopper, monkeypatch):
    x, weight, next_weight = (torch.zeros(n, size, dtype=BF16) for n, size in ((5, 512), (960, 512), (1024, 960)))
    adding = bulk_tiles(x, weight, part=Part.ADDS)
    assert adding is not None
    norm = AddNorm(torch.zeros(5, 960, dtype=BF16), torch.ones(960, dtype=BF16), EPS)
    for name in ("launch", "tensor_map"):
        monkeypatch.setattr(cuda_source, name, lambda *_: None)
    deferred = bulk_add(x, weight, None, adding, norm)
    reading = bulk_tiles(deferred.rows_TH, next_weight, part=Part.SCALES)
    assert reading is not None
    ahead = {*hopper.loaded}
    bulk_linear(deferred, next_weight, None, reading)
    assert hopper.loaded[-1] in ahead and deferred.squares_TP.shape == (5, 60)


@pytest.mark.parametrize("part", [Part.ADDS, Part.SCALES])
@pytest.mark.parametrize("tiles", LAUNCHES, ids=str)
def test_compiles_for_sm90(tiles, part):
    assert cuda_source.binary(source(tiles, False, False, part, NUM_PARTS), "sm_90").startswith(b"\x7fELF")


@pytest.mark.parametrize("tiles", GATED, ids=str)
def test_gate_and_up_compile_for_sm90(tiles):
    assert cuda_source.binary(source(tiles, True, False, Part.SCALES, NUM_PARTS), "sm_90").startswith(b"\x7fELF")


def random_norm(rows: int, hidden: int, size: float = 1.0) -> AddNorm:
    drawn = torch.Generator().manual_seed(rows + hidden)
    residual = torch.randn(rows, hidden, generator=drawn) * size
    return AddNorm(residual.to(CUDA, BF16), torch.rand(hidden, generator=drawn).to(CUDA, BF16), EPS)


def padded_rows(tiles: Tiles) -> list[int]:
    return [tiles.rows, tiles.rows - 3]


def check_added(product: torch.Tensor, before: AddNorm, after: AddNorm, deferred: DeferredNorm) -> None:
    """Bits of the residual and of the rows are those of separate operators; squares are sums in another order."""
    residual = before.residual_TH + product
    assert torch.equal(after.residual_TH, residual)
    assert torch.equal(deferred.rows_TH, (residual.float() * before.weight_H.float()).to(residual.dtype))
    squares = deferred.squares_TP.double().sum(1)
    torch.testing.assert_close(squares, (residual.double() ** 2).sum(1), rtol=1e-5, atol=0)


def copy_of(norm: AddNorm) -> AddNorm:
    return AddNorm(norm.residual_TH.clone(), norm.weight_H, norm.eps)


@pytest.mark.gpu
@pytest.mark.parametrize("tiles", LAUNCHES, ids=str)
@pytest.mark.parametrize(("hidden", "inputs"), [(16, 256), (304, 320), (4096, 256), (9024, 576)], ids=str)
@pytest.mark.parametrize("biased", [False, True])
def test_outputs_are_added_to_the_residual(tiles, hidden, inputs, biased):
    if tiles.split > 1 and -(-hidden // tiles.outputs) * tiles.split > 132:
        pytest.skip("a cluster has one tile")
    for rows in padded_rows(tiles):
        x, weight = operands(rows, inputs, hidden, BF16)
        bias = (torch.randn(hidden, device=CUDA) * inputs**0.5).to(BF16) if biased else None
        before = random_norm(rows, hidden, inputs**0.5)
        after = copy_of(before)
        deferred = bulk_add(x, weight, bias, tiles, after)
        check_added(bulk_linear(x, weight, bias, tiles), before, after, deferred)


def deferred_rows(rows: int, num_parts: int) -> tuple[DeferredNorm, torch.Tensor]:
    """Rows of 320 inputs, and the same in double precision with their norm."""
    x, _ = operands(rows, 320, 1, BF16)
    squares = 320 * torch.rand(rows, num_parts, generator=torch.Generator().manual_seed(num_parts)) + 32
    deferred = DeferredNorm(x, squares.to(CUDA), EPS)
    return deferred, x.double() * scales_ref(deferred).double()


@pytest.mark.gpu
@pytest.mark.parametrize("num_parts", [4, 36, 32, 100, 256])
@pytest.mark.parametrize("tiles", LAUNCHES, ids=str)
def test_outputs_are_scaled(tiles, num_parts):
    _, weight = operands(1, 320, 1008, BF16)
    bias = torch.randn(1008, device=CUDA).to(BF16)
    for rows in padded_rows(tiles):
        deferred, normed = deferred_rows(rows, num_parts)
        assert_near(bulk_linear(deferred, weight, bias, tiles), normed @ weight.double().T + bias.double())


@pytest.mark.gpu
@pytest.mark.parametrize("num_parts", [4, 36, 256])
@pytest.mark.parametrize("tiles", GATED, ids=str)
def test_gate_and_up_are_scaled_before_the_activation(tiles, num_parts):
    _, weight = operands(1, 320, 1008, BF16)
    for rows in padded_rows(tiles):
        deferred, normed = deferred_rows(rows, num_parts)
        assert_near(bulk_gated(deferred, weight, tiles), gated_ref(normed, weight))


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 5, 8, 17, 32, 40, MAX_ROWS])
@pytest.mark.parametrize(("inputs", "hidden"), [(4096, 4096), (14336, 4096), (576, 576), (8960, 1536)], ids=str)
def test_the_chosen_launches_of_real_shapes(rows, inputs, hidden):
    """o and down of Llama-3.1-8B, o of SmolLM2, down of Qwen2.5-1.5B, then gate and up, against a norm in between."""
    x, weight = operands(rows, inputs, hidden, BF16)
    _, gate_up = operands(rows, hidden, 3 * hidden, BF16)
    adding, reading = bulk_tiles(x, weight, part=Part.ADDS), bulk_tiles(x[:, :hidden], gate_up, True, Part.SCALES)
    assert adding is not None and reading is not None
    before = random_norm(rows, hidden, inputs**0.5)
    after = copy_of(before)
    deferred = bulk_add(x, weight, None, adding, after)
    check_added(bulk_linear(x, weight, None, adding), before, after, deferred)
    normed = F.rms_norm(after.residual_TH.double(), (hidden,), before.weight_H.double(), EPS)
    assert_near(bulk_gated(deferred, gate_up, reading), gated_ref(normed, gate_up))


@pytest.mark.gpu
def test_a_row_has_the_same_bits_alone_and_among_others():
    x, weight = operands(MAX_ROWS, 4096, 4096, BF16)
    _, gate_up = operands(MAX_ROWS, 4096, 28672, BF16)
    norm = random_norm(MAX_ROWS, 4096, 64)

    def layer(rows: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        adding, reading = bulk_tiles(rows, weight, part=Part.ADDS), bulk_tiles(rows, gate_up, True, Part.SCALES)
        assert adding is not None and reading is not None
        deferred = bulk_add(rows, weight, None, adding, AddNorm(residual.clone(), norm.weight_H, EPS))
        return bulk_gated(deferred, gate_up, reading)

    together = layer(x, norm.residual_TH)
    for count in (1, 5, 8, 16, 17, 33, 40):
        assert torch.equal(layer(x[-count:], norm.residual_TH[-count:]), together[-count:])


@pytest.mark.gpu
def test_a_row_of_nan_stays_alone():
    x, weight = operands(7, 4096, 4096, BF16)
    tiles = bulk_tiles(x, weight, part=Part.ADDS)
    reading = bulk_tiles(x, weight, part=Part.SCALES)
    norm = random_norm(7, 4096)
    expected = bulk_linear(bulk_add(x, weight, None, tiles, copy_of(norm)), weight, None, reading)
    norm.residual_TH[3, 77] = float("nan")
    y = bulk_linear(bulk_add(x, weight, None, tiles, copy_of(norm)), weight, None, reading)
    assert y[3].isnan().all() and torch.equal(y[4:], expected[4:]) and torch.equal(y[:3], expected[:3])


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [4, 17, 40])
def test_a_captured_chain_waits_for_its_inputs(rows):
    """Each product reads what the one before it stores, whose kernel may still run when it starts. A missing wait
    before the residual might go unseen: a block of the next product but one rarely starts so early."""
    x, weight = operands(rows, 4096, 4096, BF16)
    weight *= 0.03
    norm = random_norm(rows, 4096)
    adding, reading = bulk_tiles(x, weight, part=Part.ADDS), bulk_tiles(x, weight, part=Part.SCALES)
    assert adding is not None and reading is not None
    residual = norm.residual_TH.clone()
    torch.cuda.synchronize()  # weights are read before the wait for the kernel before

    def chain(y: torch.Tensor, in_order: bool) -> torch.Tensor:
        residual.copy_(norm.residual_TH)
        for _ in range(10):
            deferred = bulk_add(y, weight, None, adding, AddNorm(residual, norm.weight_H, EPS))
            if in_order:
                torch.cuda.synchronize()
            y = bulk_linear(deferred, weight, None, reading)
            if in_order:
                torch.cuda.synchronize()
        return y + residual

    assert_captured_as_in_order(x, chain)
