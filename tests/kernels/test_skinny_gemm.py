"""Products of few rows: the right sums for ragged blocks, the same bits for a row alone and among others."""

import pytest
import torch

from specbench.kernels.skinny_gemm import (
    MAX_ROWS,
    Blocks,
    choose_blocks,
    skinny_blocks,
    skinny_gated,
    skinny_gated_ref,
    skinny_linear,
    skinny_linear_ref,
)

# Triton's interpreter multiplies no bfloat16.
DTYPES = [torch.float16, torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)]
RAGGED = Blocks(outputs=16, inputs=32, num_stages=3, num_warps=4, prefetch=1)
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}


def operands(rows: int, inputs: int, outputs: int, device, dtype) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(rows + inputs + outputs)
    x, weight = (torch.randn(n, inputs, generator=drawn).to(device, dtype) for n in (rows, outputs))
    return x, weight


def assert_near(actual: torch.Tensor, expected: torch.Tensor) -> None:
    scale = float(expected.abs().max())
    torch.testing.assert_close(actual.double().cpu(), expected.cpu(), rtol=0, atol=TOLERANCE[actual.dtype] * scale)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 5, 16, 17, 40, MAX_ROWS])
@pytest.mark.parametrize("inputs,outputs", [(32, 16), (80, 50), (112, 7)], ids=str)
@pytest.mark.parametrize("has_bias", [False, True])
def test_triton_linear(rows, inputs, outputs, has_bias, dtype, device):
    if device.type == "cpu" and dtype == torch.bfloat16:
        pytest.skip("the interpreter multiplies no bfloat16")
    x, weight = operands(rows, inputs, outputs, device, dtype)
    bias = torch.arange(outputs, device=device).to(dtype) if has_bias else None
    wide = torch.zeros(()) if bias is None else bias.double()
    y = skinny_linear(x, weight, bias, RAGGED)
    assert y.is_contiguous() and y.dtype == dtype
    assert_near(y, x.double() @ weight.double().T + wide.to(device))
    assert_near(skinny_linear_ref(x, weight, bias), x.double() @ weight.double().T + wide.to(device))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 5, 33])
@pytest.mark.parametrize("inputs,outputs", [(32, 16), (80, 50)], ids=str)
def test_triton_gated(rows, inputs, outputs, dtype, device):
    if device.type == "cpu" and dtype == torch.bfloat16:
        pytest.skip("the interpreter multiplies no bfloat16")
    x, weight = operands(rows, inputs, 2 * outputs, device, dtype)
    gate, up = (x.double() @ weight.double().T).chunk(2, dim=1)
    y = skinny_gated(x, weight, RAGGED)
    assert y.shape == (rows, outputs) and y.dtype == dtype
    assert_near(y, gate / (1 + torch.exp(-gate)) * up)
    assert_near(skinny_gated_ref(x, weight), gate / (1 + torch.exp(-gate)) * up)


def test_triton_reads_strided_rows_and_nothing_beside_them(device):
    x, weight = operands(6, 64, 24, device, torch.float16)
    padded = torch.full((6, 96), float("nan"), device=device, dtype=x.dtype)
    padded[:, :64] = x
    assert torch.equal(skinny_linear(padded[:, :64], weight, None, RAGGED), skinny_linear(x, weight, None, RAGGED))


def test_triton_gives_a_row_the_same_bits_alone_and_among_others(device):
    x, weight = operands(16, 96, 40, device, torch.float16)
    together = skinny_linear(x, weight, None, RAGGED)
    for row in (0, 7, 15):
        assert torch.equal(skinny_linear(x[row : row + 1], weight, None, RAGGED)[0], together[row])


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 5, 16, 40, 64])
@pytest.mark.parametrize("inputs,outputs", [(576, 960), (1536, 576), (4096, 6144), (14336, 4096)], ids=str)
def test_the_chosen_blocks_of_real_shapes(rows, inputs, outputs):
    x, weight = operands(rows, inputs, outputs, torch.device("cuda"), torch.bfloat16)
    expected = x.double() @ weight.double().T
    blocks = skinny_blocks(x, weight)
    assert (blocks is None) == (rows > 16 and inputs > 1024)
    if blocks is not None:
        assert_near(skinny_linear(x, weight, None, blocks), expected)
    gated_blocks = skinny_blocks(x, weight, is_gated=True)
    assert (gated_blocks is None) == (rows > 16 and inputs > 1024), "too few blocks"
    if gated_blocks is not None:
        gate, up = expected.chunk(2, dim=1)
        assert_near(skinny_gated(x, weight, gated_blocks), gate / (1 + torch.exp(-gate)) * up)


@pytest.mark.gpu
def test_a_captured_chain_waits_for_its_inputs():
    """Each product reads the one before it, whose kernel may still run when it starts."""
    device = torch.device("cuda")
    x, weight = operands(4, 2048, 2048, device, torch.bfloat16)
    weight *= 0.03
    blocks = skinny_blocks(x, weight)

    def chain(y: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            y = skinny_linear(y, weight, None, blocks)
        return y

    def chain_in_order(y: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            y = skinny_linear(y, weight, None, blocks)
            torch.cuda.synchronize()
        return y

    chain_in_order(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = chain(x)
    for seed in range(20):
        x.copy_(torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)))
        graph.replay()
        assert torch.equal(captured, chain_in_order(x))


def test_what_is_left_to_cublas(device):
    large = torch.zeros(1024, 1024, dtype=torch.bfloat16, device=device)
    assert (skinny_blocks(large[:1], large) is not None) == (device.type == "cuda")
    for x, weight in (
        (large[:0], large),
        (large[: MAX_ROWS + 1], large),
        (large[:1].float(), large.float()),
        (large[:1, :64], large[:64, :64].contiguous()),
        (large[:1, :1000], large[:, :1000].contiguous()),
    ):
        assert skinny_blocks(x, weight) is None


@pytest.mark.parametrize("rows", [1, 16, 17, 64])
@pytest.mark.parametrize("is_gated", [False, True])
def test_blocks_fit_into_shared_memory(rows, is_gated):
    for outputs, inputs in (
        (576, 576),
        (1024, 256),
        (960, 576),
        (4096, 4096),
        (6144, 4096),
        (128256, 4096),
        (4096, 14336),
        (4096, 1024),
        (8192, 576),
        (7168, 4096),
        (28672, 8192),
    ):
        if blocks := choose_blocks(rows, outputs, inputs, is_gated):
            weights = blocks.outputs * (2 if is_gated else 1)
            padded_rows = max(16, 1 << (rows - 1).bit_length())
            assert blocks.num_stages * blocks.inputs * (weights + padded_rows) * 2 <= 227 * 1024
            assert blocks.prefetch * 64 <= inputs, "nothing behind the weights is prefetched"


def test_products_that_cublas_multiplies_faster():
    """Many rows of a long weight, and few outputs of a long one: Qwen2.5-1.5B's down projection."""
    assert choose_blocks(40, 4096, 4096, False) is None and choose_blocks(5, 1536, 8960, False) is None
    assert choose_blocks(40, 4096, 1024, False) is None and choose_blocks(40, 960, 576, False) is not None
    assert choose_blocks(5, 4096, 4096, False) is not None and choose_blocks(5, 576, 1536, False) is not None


def test_gate_and_up_of_a_rank_of_four_have_too_few_blocks_of_64_outputs():
    """56 of Llama-3.1-8B's: cuBLAS takes 40 rows, narrower blocks take 5."""
    assert choose_blocks(40, 7168, 4096, True) is None
    few = choose_blocks(5, 7168, 4096, True)
    assert few is not None and few.outputs == 32


@pytest.mark.parametrize(("outputs", "inputs"), [(14336, 128), (17920, 64), (28672, 128)])
def test_gate_and_up_take_the_block_that_fills_the_last_wave(outputs, inputs):
    """Of 112 blocks one a multiprocessor, of 224 two rounds; 140 (Qwen2.5-1.5B's) would leave the second all but
    empty."""
    blocks = choose_blocks(40, outputs, 4096, True)
    assert blocks is not None and blocks.inputs == inputs


def test_blocks_of_128_inputs_leave_no_input_over():
    for outputs, inputs, of_block in ((8192, 576, 64), (576, 576, 64), (8192, 4096, 128), (4096, 1024, 128)):
        blocks = choose_blocks(5, outputs, inputs, False)
        assert blocks is not None and blocks.inputs == of_block and inputs % of_block == 0
