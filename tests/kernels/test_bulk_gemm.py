"""Products of few rows in CUDA C++: launches that fit, code that compiles, and on a GPU the right sums."""

import re

import pytest
import torch

from specbench.kernels import cuda_source
from specbench.kernels.bulk_gemm import (
    MAX_ROWS,
    ROW_BLOCKS,
    Tiles,
    bulk_gated,
    bulk_linear,
    bulk_tiles,
    choose_tiles,
    source,
)

CUDA = torch.device("cuda")
TOLERANCE = {torch.float16: 2**-10, torch.bfloat16: 2**-7}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
# Outputs, inputs, whether gate and up: SmolLM2, Qwen2.5-1.5B, Llama-3.1-8B, its part of four, Llama-2-70B's of two.
SHAPES = [
    (960, 576, False),
    (576, 576, False),
    (3072, 576, True),
    (576, 1536, False),
    (2048, 1536, False),
    (1536, 8960, False),
    (17920, 1536, True),
    (6144, 4096, False),
    (4096, 14336, False),
    (28672, 4096, True),
    (128256, 4096, False),
    (4096, 1024, False),
    (7168, 4096, True),
    (5120, 8192, False),
]


def operands(rows: int, inputs: int, outputs: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(rows + inputs + outputs)
    x, weight = (torch.randn(n, inputs, generator=drawn).to(CUDA, dtype) for n in (rows, outputs))
    return x, weight


def gated_ref(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    gate, up = (x.double() @ weight.double().T).chunk(2, dim=1)
    return gate / (1 + torch.exp(-gate)) * up


def assert_near(actual: torch.Tensor, expected: torch.Tensor) -> None:
    scale = float(expected.abs().max())
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=TOLERANCE[actual.dtype] * scale)


@pytest.mark.parametrize("rows", [1, 8, 9, 17, 33, MAX_ROWS])
@pytest.mark.parametrize(("outputs", "inputs", "is_gated"), SHAPES)
def test_launches_fit(rows, outputs, inputs, is_gated):
    tiles = choose_tiles(rows, outputs, inputs, is_gated)
    assert tiles is not None and tiles.rows >= rows and tiles.rows in ROW_BLOCKS
    assert tiles.num_stages >= 3, "one is copied while another is multiplied"
    assert tiles.shared_bytes <= cuda_source.MAX_SHARED_BYTES
    assert tiles.outputs % 16 == 0, "tiles of 16 outputs, of gate and up in whole swizzled tiles of 8"
    assert tiles.outputs * tiles.rows <= 64 * 48, "more sums do not fit into a warp's registers"


def test_one_round_where_one_is_enough():
    """128 blocks of Llama-3.1-8B's qkv, 128 of its o: no multiprocessor has two while another has none."""
    for outputs, of_block in ((6144, 48), (4096, 32)):
        tiles = choose_tiles(1, outputs, 4096, False)
        assert tiles is not None and tiles.outputs == of_block


@pytest.mark.parametrize("shape", [(64, 64), (4096, 1000)], ids=["small", "inputs left over"])
def test_what_other_kernels_take(shape):
    assert choose_tiles(1, *shape, False) is None


def test_nothing_runs_without_a_gpu():
    x = torch.zeros(1, 4096, dtype=torch.bfloat16)
    assert not cuda_source.runs_on(x.device)
    assert bulk_tiles(x, torch.zeros(4096, 4096, dtype=torch.bfloat16)) is None


@pytest.mark.parametrize("is_half", [False, True])
@pytest.mark.parametrize("is_gated", [False, True])
@pytest.mark.parametrize("rows", ROW_BLOCKS)
def test_compiles_for_sm90(rows, is_gated, is_half):
    code = cuda_source.binary(source(Tiles(32, rows, 4), is_gated, is_half), "sm_90")
    assert code.startswith(b"\x7fELF") and b"few_rows" in code


def test_what_does_not_compile_says_why():
    with pytest.raises(RuntimeError, match=re.escape("bulk_gemm.cu does not compile for sm_90:")) as refused:
        cuda_source.binary(source(Tiles(24, 8, 4), False, False), "sm_90")
    assert "tiles must be whole" in str(refused.value)


@pytest.mark.gpu
@DTYPES
@pytest.mark.parametrize("rows", [1, 2, 5, 8, 9, 16, 17, 32, 33, MAX_ROWS])
@pytest.mark.parametrize(("outputs", "inputs"), [(16, 64), (50, 320), (7, 576), (300, 2112), (9000, 256)], ids=str)
@pytest.mark.parametrize("of_block", [16, 48])
def test_linear_with_ragged_blocks(rows, inputs, outputs, of_block, dtype):
    """Blocks that reach behind the last output, stages behind the last input, more rounds than one."""
    x, weight = operands(rows, inputs, outputs, dtype)
    bias = torch.arange(outputs, device=CUDA).to(dtype)
    tiles = Tiles(of_block, next(block for block in ROW_BLOCKS if block >= rows), 3)
    expected = x.double() @ weight.double().T
    assert_near(bulk_linear(x, weight, None, tiles), expected)
    assert_near(bulk_linear(x, weight, bias, tiles), expected + bias.double())


@pytest.mark.gpu
@DTYPES
@pytest.mark.parametrize("rows", [1, 5, 17, MAX_ROWS])
@pytest.mark.parametrize(("outputs", "inputs"), [(16, 64), (50, 320), (5000, 576)], ids=str)
def test_gated_with_ragged_blocks(rows, inputs, outputs, dtype):
    x, weight = operands(rows, inputs, 2 * outputs, dtype)
    tiles = Tiles(32, next(block for block in ROW_BLOCKS if block >= rows), 3)
    y = bulk_gated(x, weight, tiles)
    assert y.shape == (rows, outputs) and y.dtype == dtype
    assert_near(y, gated_ref(x, weight))


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 5, 16, 32, MAX_ROWS])
@pytest.mark.parametrize(("outputs", "inputs", "is_gated"), SHAPES)
def test_the_chosen_launches_of_real_shapes(rows, outputs, inputs, is_gated):
    x, weight = operands(rows, inputs, outputs, torch.bfloat16)
    tiles = bulk_tiles(x, weight, is_gated)
    assert tiles is not None
    if is_gated:
        assert_near(bulk_gated(x, weight, tiles), gated_ref(x, weight))
    else:
        assert_near(bulk_linear(x, weight, None, tiles), x.double() @ weight.double().T)


@pytest.mark.gpu
@pytest.mark.parametrize(("outputs", "inputs", "is_gated"), [(6144, 4096, False), (28672, 4096, True)])
def test_a_row_has_the_same_bits_alone_and_among_others(outputs, inputs, is_gated):
    x, weight = operands(MAX_ROWS, inputs, outputs, torch.bfloat16)

    def product(rows: torch.Tensor) -> torch.Tensor:
        tiles = bulk_tiles(rows, weight, is_gated)
        return bulk_gated(rows, weight, tiles) if is_gated else bulk_linear(rows, weight, None, tiles)

    together = product(x)
    for count in (1, 5, 8, 16, 30):
        assert torch.equal(product(x[-count:]), together[-count:])


@pytest.mark.gpu
def test_strided_rows_and_nothing_beside_them():
    x, weight = operands(6, 512, 64, torch.float16)
    padded = torch.full((6, 640), float("nan"), device=CUDA, dtype=x.dtype)
    padded[:, :512] = x
    tiles = Tiles(16, 8, 3)
    assert torch.equal(bulk_linear(padded[:, :512], weight, None, tiles), bulk_linear(x, weight, None, tiles))


@pytest.mark.gpu
def test_a_row_of_nan_stays_alone():
    """Rows that do not exist are not copied: what an earlier launch left in their place reaches no other row."""
    x, weight = operands(7, 4096, 4096, torch.bfloat16)
    tiles = bulk_tiles(x, weight)
    expected = bulk_linear(x, weight, None, tiles)
    bulk_linear(torch.full((8, 4096), float("nan"), device=CUDA, dtype=x.dtype), weight, None, tiles)
    assert torch.equal(bulk_linear(x, weight, None, tiles), expected)
    x[3] = float("nan")
    y = bulk_linear(x, weight, None, tiles)
    others = [0, 1, 2, 4, 5, 6]
    assert y[3].isnan().all() and torch.equal(y[others], expected[others])


@pytest.mark.gpu
def test_a_captured_chain_waits_for_its_inputs():
    """Each product reads the one before it, whose kernel may still run when it starts."""
    x, weight = operands(4, 2048, 2048, torch.bfloat16)
    weight *= 0.03
    tiles = bulk_tiles(x, weight)

    def chain(y: torch.Tensor, in_order: bool) -> torch.Tensor:
        for _ in range(20):
            y = bulk_linear(y, weight, None, tiles)
            if in_order:
                torch.cuda.synchronize()
        return y

    chain(x, in_order=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = chain(x, in_order=False)
    for seed in range(20):
        x.copy_(torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)))
        graph.replay()
        assert torch.equal(captured, chain(x, in_order=True))
