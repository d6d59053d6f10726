"""Products of tens of rows in CUDA C++: launches that fit, code that compiles, and on a GPU the right sums."""

import math
from dataclasses import replace

import pytest
import torch
from kernels.product_cases import (
    CUDA,
    DTYPES,
    SHAPES,
    Hopper,
    assert_captured_as_in_order,
    assert_near,
    gated_ref,
    operands,
    products_of_a_layer,
)

from specbench.kernels import cuda_source, wgmma_gemm
from specbench.kernels.wgmma_gemm import (
    BLOCK_ROWS,
    MAX_ROWS,
    MIN_ROWS,
    Tiles,
    choose_tiles,
    source,
    wgmma_gated,
    wgmma_linear,
    wgmma_tiles,
)

VOCABULARY = 128256
MOST_OF_A_BLOCK = BLOCK_ROWS[-1]
LLAMAS = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)]  # Llama-3.1-8B's, whole
PARTS = [  # of two and four GPUs
    *((6144 // n, 4096, False) for n in (2, 4)),
    *((4096, inputs // n, False) for n in (2, 4) for inputs in (4096, 14336)),
    *((28672 // n, 4096, True) for n in (2, 4)),
]
LARGE = [shape for shape in SHAPES if shape[1] >= 4096 and shape[0] not in (VOCABULARY, 1536)]  # Llama's


@pytest.mark.parametrize("rows", [MIN_ROWS, 64, 65, 97, MOST_OF_A_BLOCK, MAX_ROWS])
@pytest.mark.parametrize(("outputs", "inputs", "is_gated"), LARGE)
def test_launches_fit(rows, outputs, inputs, is_gated):
    tiles = choose_tiles(rows, outputs, inputs, is_gated)
    if tiles is None:
        assert rows == MAX_ROWS and (outputs, inputs) not in LLAMAS, "parts of models give work to too few"
        return
    assert tiles.rows * tiles.row_blocks >= rows and tiles.rows in BLOCK_ROWS
    assert tiles.num_stages >= 3 and tiles.shared_bytes <= cuda_source.MAX_SHARED_BYTES
    registers = tiles.registers
    most = (tiles.groups + 1) * registers["REGISTERS"]
    assert tiles.groups * registers["MULTIPLY_REGISTERS"] + registers["COPY_REGISTERS"] <= most
    assert 128 * most <= 1 << 16 and all(count % 8 == 0 for count in registers.values())
    meeting = (tiles.split - 1) * -(-tiles.rows // 8 // tiles.split) * 8 * tiles.outputs * 4
    assert meeting <= tiles.num_stages * tiles._stage_bytes, "sums that meet take the place of the stages"


@pytest.mark.parametrize(
    ("outputs", "inputs", "is_gated", "split"),
    [(6144, 4096, False, 2), (4096, 4096, False, 3), (2560, 8192, False, 4), (28672, 4096, True, 1)],
)
def test_inputs_are_split_while_all_clusters_run_at_once(outputs, inputs, is_gated, split):
    tiles = choose_tiles(64, outputs, inputs, is_gated)
    assert tiles is not None and tiles.split == split
    assert -(-outputs // tiles.outputs) <= {1: 264, 2: 66, 3: 39, 4: 30}[split]


@pytest.mark.parametrize(
    "shape",
    [(64, 64, False), (4100, 4096, False), (4104, 4096, True), (4096, 4100, False), (VOCABULARY, 4096, False)],
    ids=["small", "outputs left over", "gates left over", "inputs left over", "a vocabulary"],
)
def test_what_other_kernels_take(shape):
    assert choose_tiles(64, *shape) is None


def test_blocks_for_half_of_a_card_gain_with_few_rows_or_where_silu_is_saved():
    def is_left(*shape):
        return [choose_tiles(rows, *shape) is None for rows in (64, 80, 96, 128, 160, 320)]

    assert is_left(2048, 8192, False) == [False] * 2 + [True] * 4
    assert is_left(17920, 1536, True) == [False] * 5 + [True], "Qwen2.5-1.5B's gate and up: 70 blocks of 132"
    assert is_left(17920, 1536, False) == [False] * 2 + [True] * 4, "without SiLU"


def test_long_inputs_are_split_among_seven_blocks():
    """Qwen2.5-1.5B's down: twelve tiles, whose clusters of seven run at once."""
    assert [choose_tiles(rows, 1536, 8960, False).split for rows in (64, 80, 96, 128, 160)] == [4, 4, 7, 7, 7]
    assert choose_tiles(160, 1536, 8192, False) is None, "in shorter parts, of which four would give work to 48 blocks"
    assert choose_tiles(160, 1536, 8952, False) is None
    assert choose_tiles(160, 2048, 8960, False) is None, "only 15 clusters of seven run at once, and 16 would have to"


@pytest.mark.parametrize(("outputs", "inputs", "is_gated"), [*SHAPES, *PARTS])
@pytest.mark.parametrize("rows", [range(MIN_ROWS, 81), range(81, 161), range(161, MAX_ROWS + 1)], ids=str)
def test_inputs_are_cut_into_as_many_parts_for_all_rows_of_a_range(rows, outputs, inputs, is_gated):
    chosen = filter(None, (choose_tiles(each, outputs, inputs, is_gated) for each in rows))
    assert len({tiles.split for tiles in chosen}) <= 1


def test_many_rows_are_cut_into_two_blocks():
    def chosen(rows):
        return [choose_tiles(rows, *shape, is_gated=shape[0] == 28672) for shape in LLAMAS]

    for block in (96, 128, 160):
        plain = Tiles(128, block, split=2, row_blocks=2)
        assert chosen(2 * block) == [replace(plain, outputs=192), plain, Tiles(256, block, row_blocks=2), plain]
    assert [tiles.cluster for tiles in chosen(MAX_ROWS)] == [2] * 4, "parts of the inputs, or blocks that share weights"
    assert {rows for rows in range(161, MAX_ROWS + 1) if None not in chosen(rows)} == {
        *range(173, 193),
        *range(231, 257),
        *range(289, 321),
    }, "a tenth of padding is too much"
    assert choose_tiles(MAX_ROWS, 5120, 8192, False) is None, "108 blocks of 192 outputs, 82% of a wave"
    assert choose_tiles(MAX_ROWS, 20736, 4096, False) is None, "216 blocks of 192 outputs, 82% of two waves"
    assert choose_tiles(MAX_ROWS, 24576, 4096, False) is None, "Qwen3-8B's gate and up, of which nothing was measured"


def test_a_second_wave_with_little_work_is_left_to_cublas():
    """140 tiles of Qwen2.5-1.5B's gate/up as a plain product, which is what is tried where the gated one is refused."""
    assert [choose_tiles(rows, 17920, 1536, False) for rows in (96, 128, 160)] == [None] * 3
    is_left = [choose_tiles(160, tiles * 128, 4096, False) is None for tiles in (132, 133, 158, 159)]
    assert is_left == [False, True, True, False]
    assert None not in (choose_tiles(rows, 17920, 1536, False) for rows in (64, 80)), "few rows gain all the same"
    assert choose_tiles(160, 140 * 256, 4096, True) is None, "gate and up in two waves neither"


def test_rows_that_would_be_padded_most_go_to_cublas():
    chosen = [choose_tiles(rows, 28672, 4096, True) for rows in (128, 129, 144, 145, 160)]
    assert [tiles and tiles.rows for tiles in chosen] == [128, None, None, 160, 160]


@pytest.fixture
def hopper(monkeypatch):
    wgmma_gemm._met_tiles.cache_clear()
    yield Hopper(monkeypatch)
    wgmma_gemm._met_tiles.cache_clear()


def test_all_numbers_of_rows_are_compiled_when_one_is_first_met(hopper):
    x, weight = torch.zeros(MIN_ROWS, 4096, dtype=torch.float16), torch.zeros(6144, 4096, dtype=torch.float16)
    assert wgmma_tiles(x[1:], weight) is None and not hopper.loaded, "few rows meet nothing"
    assert wgmma_tiles(x, weight) == choose_tiles(MIN_ROWS, 6144, 4096, False)
    met = {(dict(source.constants)["ROWS"], dict(source.constants)["ROW_BLOCKS"]) for source in hopper.loaded}
    assert met == {(rows, 1) for rows in BLOCK_ROWS} | {(rows, 2) for rows in (96, 128, 160)}
    before = len(hopper.loaded)
    assert wgmma_tiles(x.new_zeros(MAX_ROWS, 4096), weight) == choose_tiles(MAX_ROWS, 6144, 4096, False) is not None
    assert len(hopper.loaded) == before


def test_rows_that_a_bulk_copy_cannot_read(hopper):
    weight = torch.zeros(8192, 512, dtype=torch.float16)
    wide = torch.zeros(64, 1032, dtype=torch.float16)
    assert wgmma_tiles(wide[:, :512], weight) is not None
    assert wgmma_tiles(wide[:, 1:513], weight) is None, "an address that is no multiple of 16"
    assert wgmma_tiles(torch.zeros(64, 516, dtype=torch.float16)[:, :512], weight) is None, "rows of 1,032 bytes"
    assert wgmma_tiles(torch.zeros(MAX_ROWS + 1, 512, dtype=torch.float16), weight) is None
    assert wgmma_tiles(torch.zeros(64, 512), weight.float()) is None
    assert wgmma_tiles(torch.zeros(64, 512), weight) is None


def test_a_layer_multiplies_by_it(hopper, monkeypatch):
    bias, called = products_of_a_layer(monkeypatch, "wgmma", rows=80, outputs=16384, inputs=512)
    plain, gated = (choose_tiles(80, 16384, 512, is_gated) for is_gated in (False, True))
    assert plain is not None and called == [("linear", bias, plain), ("gated", None, gated)] and plain != gated


def chosen_forms() -> list[tuple[Tiles, bool]]:
    """(launch, is gated), mostly of real shapes."""
    whole = ((*shape, shape[0] == 28672) for shape in LLAMAS)
    shapes = [*SHAPES, *whole, *PARTS, (16384, 512, False), (16896, 4096, False)]
    met = {(choose_tiles(rows, *shape), shape[2]) for shape in shapes for rows in range(MIN_ROWS, MAX_ROWS + 1)}
    return sorted(((tiles, is_gated) for tiles, is_gated in met if tiles is not None), key=str)


@pytest.mark.parametrize("is_half", [False, True])
@pytest.mark.parametrize(("tiles", "is_gated"), chosen_forms(), ids=str)
def test_compiles_for_sm90(tiles, is_gated, is_half):
    code = cuda_source.binary(source(tiles, is_gated, is_half), "sm_90a")
    assert code.startswith(b"\x7fELF") and b"wgmma_gemm" in code


@pytest.mark.parametrize(
    ("tiles", "outputs", "blocks", "cluster"),
    [
        (Tiles(128, 96, split=3), 4096, 96, 3),
        (Tiles(192, 160, split=2, row_blocks=2), 6144, 128, 2),
        (Tiles(256, 160, row_blocks=2), 28672, 130, 2),  # pairs on 131 multiprocessors
        (Tiles(128, 160), 28672, 131, 1),
    ],
    ids=str,
)
def test_what_is_launched(tiles, outputs, blocks, cluster, monkeypatch):
    boxes, launched = [], []
    monkeypatch.setattr(cuda_source, "num_multiprocessors", lambda device: 131)
    monkeypatch.setattr(cuda_source, "load", lambda source, shared_bytes, device: dict(source.constants))
    monkeypatch.setattr(cuda_source, "tensor_map", lambda matrix, shape, strides, box: boxes.append((*shape, *box)))
    monkeypatch.setattr(cuda_source, "launch", lambda function, grid, *_: launched.append((function, grid)))
    x, weight = (torch.zeros(n, 4096, device="meta") for n in (tiles.rows * tiles.row_blocks, outputs))
    wgmma_linear(x, weight, None, tiles)
    ((constants, grid),) = launched
    assert (grid.blocks, grid.cluster, grid.threads) == (blocks, cluster, 128 * (constants["GROUPS"] + 1))
    assert 64 * constants["GROUPS"] * constants["TILES"] == tiles.outputs
    assert boxes == [(4096, len(x), 64, tiles.rows), (4096, outputs, 1, 64, tiles.outputs // 2, 1)]
    num_bytes = 2 * (math.prod(boxes[0][2:]) + 2 * math.prod(boxes[1][3:]))  # for which a stage's barrier waits
    assert grid.shared_bytes == constants["STAGES"] * (num_bytes + 16) + constants["GROUPS"] * 4 * 16 * 48


def test_what_does_not_compile_says_why():
    with pytest.raises(RuntimeError, match="gate and up belong together"):
        cuda_source.binary(source(Tiles(128, 64), True, False), "sm_90a")


def test_every_part_needs_inputs():
    x, weight = torch.zeros(64, 256), torch.zeros(128, 256)
    with pytest.raises(AssertionError, match="wait for ever"):
        wgmma_linear(x, weight, None, Tiles(128, 64, split=5))


@pytest.mark.gpu
@DTYPES
@pytest.mark.parametrize("rows", [2, 49, 64, 77, 80, 90, 128, 145, 160])
@pytest.mark.parametrize(("outputs", "inputs"), [(8, 512), (48, 584), (304, 2120), (18000, 512)], ids=str)
@pytest.mark.parametrize("split", [1, 2, 3, 4, 7])
def test_linear_with_ragged_blocks(rows, inputs, outputs, split, dtype):
    """Blocks that reach behind the last output, stages behind the last input, more rounds than one."""
    x, weight = operands(rows, inputs, outputs, dtype)
    bias = (torch.randn(outputs, device=CUDA) * inputs**0.5).to(dtype)  # as large as the sums: a wrong one shows
    tiles = Tiles(128, next(block for block in BLOCK_ROWS if block >= rows), split)
    expected = x.double() @ weight.double().T
    assert_near(wgmma_linear(x, weight, None, tiles), expected)
    assert_near(wgmma_linear(x, weight, bias, tiles), expected + bias.double())


@pytest.mark.gpu
@DTYPES
@pytest.mark.parametrize("rows", [49, 77, 96, 128, 150])
@pytest.mark.parametrize(("outputs", "inputs"), [(8, 256), (48, 320), (17000, 576)], ids=str)
@pytest.mark.parametrize("split", [1, 2, 4])
def test_gated_with_ragged_blocks(rows, inputs, outputs, split, dtype):
    x, weight = operands(rows, inputs, 2 * outputs, dtype)
    y = wgmma_gated(x, weight, Tiles(256, next(block for block in BLOCK_ROWS if block >= rows), split))
    assert y.shape == (rows, outputs) and y.dtype == dtype
    assert_near(y, gated_ref(x, weight))


@pytest.mark.gpu
@DTYPES
@pytest.mark.parametrize(("rows", "block"), [(161, 96), (300, 160), (320, 160), (321, 80), (640, 160)])
@pytest.mark.parametrize(("outputs", "inputs"), [(48, 320), (304, 2120), (18000, 256)], ids=str)
@pytest.mark.parametrize("tile", [128, 192, 256])
@pytest.mark.parametrize("split", [1, 2, 3])
def test_several_blocks_of_rows(rows, block, inputs, outputs, tile, split, dtype):
    x, weight = operands(rows, inputs, outputs, dtype)
    bias = (torch.randn(outputs, device=CUDA) * inputs**0.5).to(dtype)
    tiles = Tiles(tile, block, split, row_blocks=-(-rows // block))
    assert_near(wgmma_linear(x, weight, bias, tiles), x.double() @ weight.double().T + bias.double())
    if tile == 256:
        assert_near(wgmma_gated(x, weight, tiles), gated_ref(x, weight))


def product(x: torch.Tensor, weight: torch.Tensor, is_gated: bool) -> torch.Tensor:
    tiles = wgmma_tiles(x, weight, is_gated)
    assert tiles is not None
    return wgmma_gated(x, weight, tiles) if is_gated else wgmma_linear(x, weight, None, tiles)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [64, 80, 128, MOST_OF_A_BLOCK, 192, MAX_ROWS])
@pytest.mark.parametrize(("outputs", "inputs", "is_gated"), [*LARGE, (17920, 1536, True), (1536, 8960, False)])
def test_the_chosen_launches_of_real_shapes(rows, outputs, inputs, is_gated):
    if choose_tiles(rows, outputs, inputs, is_gated) is None:
        pytest.skip("cuBLAS multiplies it")
    x, weight = operands(rows, inputs, outputs, torch.bfloat16)
    assert_near(product(x, weight, is_gated), gated_ref(x, weight) if is_gated else x.double() @ weight.double().T)


@pytest.mark.gpu
@pytest.mark.parametrize(("outputs", "inputs", "is_gated"), [(6144, 4096, False), (28672, 4096, True)])
def test_a_row_has_the_same_bits_among_fewer_and_among_more(outputs, inputs, is_gated):
    """Of shapes whose inputs are cut into the same number of parts for all of these rows."""
    x, weight = operands(MOST_OF_A_BLOCK, inputs, outputs, torch.bfloat16)
    together = product(x, weight, is_gated)
    for count in (MIN_ROWS, 64, 70, 90, 120, 150):
        assert torch.equal(product(x[-count:], weight, is_gated), together[-count:])


@pytest.mark.gpu
def test_strided_rows_and_nothing_beside_them():
    x, weight = operands(60, 512, 4096, torch.float16)
    padded = torch.full((60, 640), float("nan"), device=CUDA, dtype=x.dtype)
    padded[:, :512] = x
    assert torch.equal(product(padded[:, :512], weight, False), product(x, weight, False))


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "size"), [(64, 2048), (MAX_ROWS, 4096), (256, 8192)])
def test_a_captured_chain_waits_for_its_inputs(rows, size):
    """Each product reads the one before it, whose kernel may still run when it starts; the last has pairs of blocks."""
    x, weight = operands(rows, size, size, torch.bfloat16)
    weight *= 1.4 * size**-0.5
    torch.cuda.synchronize()  # weights are read before the wait for the kernel before

    def chain(y: torch.Tensor, in_order: bool) -> torch.Tensor:
        for _ in range(20):
            y = product(y, weight, False)
            if in_order:
                torch.cuda.synchronize()
        return y

    assert_captured_as_in_order(x, chain)
