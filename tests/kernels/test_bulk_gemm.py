"""Products of few rows in CUDA C++: launches that fit, code that compiles, and on a GPU the right sums."""

import re

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

from specbench.kernels import bulk_gemm, cuda_source
from specbench.kernels.bulk_gemm import (
    MAX_ROWS,
    ROW_BLOCKS,
    Tiles,
    bulk_gated,
    bulk_linear,
    bulk_tiles,
    choose_tiles,
    fitting,
    source,
)

LAUNCHES = [
    fitting(112, 40, held=1),
    fitting(80, 48, held=1),
    fitting(64, 32, 2, 2),
    fitting(96, 32, 2, 2),
    fitting(112, 32, held=2),
    fitting(96, 40, 2, 2),
    fitting(224, 48, 2, 1),
    Tiles(32, 40, 2, 2, 2),
]  # with rows that are copied less often


@pytest.mark.parametrize("rows", [1, 8, 9, 17, 33, MAX_ROWS])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("num_sms", [78, 114, 132])
def test_launches_fit(rows, shape, num_sms):
    tiles = choose_tiles(rows, *shape, num_sms=num_sms)
    assert tiles is not None and tiles.rows >= rows and tiles.rows in ROW_BLOCKS
    assert tiles.num_stages >= max(3, 2 * tiles.turns), "one is copied while another is multiplied"
    assert tiles.num_stages % tiles.turns == 0, "a warp finds its slices in the same stages"
    if tiles.split > 1:
        assert -(-shape[0] // tiles.outputs) * tiles.split <= num_sms, "all clusters run at once"
    assert tiles.shared_bytes <= cuda_source.MAX_SHARED_BYTES


def test_one_round_where_one_is_enough():
    """128 blocks of Llama-3.1-8B's qkv, 128 of its o: no multiprocessor has two while another has none."""
    for outputs, of_block in ((6144, 48), (4096, 32)):
        tiles = choose_tiles(1, outputs, 4096)
        assert tiles is not None and tiles.outputs == of_block


def test_many_rows_are_copied_less_often():
    """With more outputs of a block, or half of the inputs each of two, where that was measured to be faster."""

    def launches(outputs: int, inputs: int, is_gated: bool = False) -> dict[int, tuple[int, int, int]]:
        chosen = {rows: choose_tiles(rows, outputs, inputs, is_gated) for rows in (16, 17, 40, 48)}
        return {rows: (tiles.outputs, tiles.split, tiles.held) for rows, tiles in chosen.items() if tiles}

    assert launches(28672, 4096, is_gated=True) == {16: (32, 1, 4), 17: (112, 1, 2), 40: (112, 1, 1), 48: (80, 1, 1)}
    assert launches(4096, 14336) == {16: (32, 1, 4), 17: (64, 2, 2), 40: (64, 2, 1), 48: (64, 2, 1)}
    assert launches(6144, 4096)[40] == (96, 2, 1)
    assert launches(17920, 1536, is_gated=True) == dict.fromkeys((16, 17, 40, 48), (48, 1, 4)), (
        "Qwen2.5-1.5B's gate and up"
    )
    assert launches(1536, 8960) == dict.fromkeys((16, 17, 40, 48), (16, 1, 4)), "its down"


@pytest.mark.parametrize("shape", [(64, 64), (4096, 1000)], ids=["small", "inputs left over"])
def test_what_other_kernels_take(shape):
    assert choose_tiles(1, *shape) is None


@pytest.fixture
def hopper(monkeypatch):
    bulk_gemm._met_tiles.cache_clear()
    yield Hopper(monkeypatch)
    bulk_gemm._met_tiles.cache_clear()


def test_all_numbers_of_rows_are_compiled_when_a_weight_is_first_met(hopper):
    x, weight = torch.zeros(1, 4096, dtype=torch.float16), torch.zeros(6144, 4096, dtype=torch.float16)
    assert bulk_tiles(x, weight) == choose_tiles(1, 6144, 4096)
    assert {dict(source.constants)["NT"] * 8 for source in hopper.loaded} == {*ROW_BLOCKS}
    before = len(hopper.loaded)
    assert bulk_tiles(x.expand(MAX_ROWS, -1).contiguous(), weight) == choose_tiles(MAX_ROWS, 6144, 4096)
    assert len(hopper.loaded) == before


def test_rows_that_a_bulk_copy_cannot_read(hopper):
    weight = torch.zeros(1024, 512, dtype=torch.float16)
    wide = torch.zeros(8, 1032, dtype=torch.float16)
    assert bulk_tiles(wide[:, :512], weight) is not None
    assert bulk_tiles(wide[:, 1:513], weight) is None, "an address that is no multiple of 16"
    assert bulk_tiles(torch.zeros(8, 516, dtype=torch.float16)[:, :512], weight) is None, "rows of 1,032 bytes"
    assert bulk_tiles(torch.zeros(512, 1, dtype=torch.float16).t(), weight) is not None, "the stride of one row"
    for rows in (0, MAX_ROWS + 1):
        assert bulk_tiles(torch.zeros(rows, 512, dtype=torch.float16), weight) is None
    assert bulk_tiles(torch.zeros(8, 512), weight.float()) is None
    assert bulk_tiles(torch.zeros(8, 512), weight) is None


def test_a_layer_multiplies_by_it(hopper, monkeypatch):
    bias, called = products_of_a_layer(monkeypatch, "bulk", rows=5, outputs=1024, inputs=512)
    tiles = choose_tiles(5, 1024, 512)
    assert called == [("linear", bias, tiles), ("gated", None, tiles)]


@pytest.mark.parametrize(
    ("capability", "version", "runs"),
    [((9, 0), "NVRTC 13.0", True), ((12, 0), "NVRTC 13.0", False), ((9, 0), None, False)],
)
def test_which_gpus_run_it(capability, version, runs, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    monkeypatch.setattr(cuda_source, "compiler", lambda: version)
    assert cuda_source.runs_on.__wrapped__(CUDA) == runs
    assert not cuda_source.runs_on.__wrapped__(torch.device("cpu"))


def test_without_the_bindings_there_is_no_compiler(monkeypatch):
    monkeypatch.setattr(cuda_source, "nvrtc", None)
    assert cuda_source.compiler.__wrapped__() is None


@pytest.mark.parametrize("is_half", [False, True])
@pytest.mark.parametrize("is_gated", [False, True])
@pytest.mark.parametrize("tiles", [*(Tiles(32, rows, 4) for rows in ROW_BLOCKS), *LAUNCHES], ids=str)
def test_compiles_for_sm90(tiles, is_gated, is_half):
    code = cuda_source.binary(source(tiles, is_gated, is_half), "sm_90")
    assert code.startswith(b"\x7fELF") and b"bulk_gemm" in code


def test_what_does_not_compile_says_why():
    with pytest.raises(RuntimeError, match=re.escape("bulk_gemm.cu does not compile for sm_90:")) as refused:
        cuda_source.binary(source(Tiles(24, 8, 4), False, False), "sm_90")
    assert "tiles must be whole" in str(refused.value)


def test_a_warp_that_would_meet_the_slices_of_others_does_not_compile():
    """A stage that holds another slice each time may be read before it is full: its phase two copies ago is over."""
    with pytest.raises(RuntimeError, match="their warps wait for no other stage"):
        cuda_source.binary(source(Tiles(112, 40, 7, held=1), False, False), "sm_90")


@pytest.mark.gpu
@DTYPES
@pytest.mark.parametrize("rows", [1, 2, 5, 8, 9, 16, 17, 32, 33, MAX_ROWS])
@pytest.mark.parametrize(("outputs", "inputs"), [(16, 64), (50, 320), (7, 576), (300, 2112), (9000, 256)], ids=str)
@pytest.mark.parametrize("of_block", [16, 48])
def test_linear_with_ragged_blocks(rows, inputs, outputs, of_block, dtype):
    """Blocks that reach behind the last output, stages behind the last input, more rounds than one."""
    x, weight = operands(rows, inputs, outputs, dtype)
    bias = (torch.randn(outputs, device=CUDA) * inputs**0.5).to(dtype)  # as large as the sums: a wrong one shows
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
    for count in (1, 5, 8, 16, 30, 33, 40):
        assert torch.equal(product(x[-count:]), together[-count:])


@pytest.mark.gpu
@DTYPES
@pytest.mark.parametrize("tiles", LAUNCHES, ids=str)
@pytest.mark.parametrize(("outputs", "inputs"), [(2002, 4096), (2002, 320), (50, 64)], ids=str)
def test_the_bits_do_not_depend_on_the_launch(outputs, inputs, tiles, dtype):
    x, weight = operands(tiles.rows - 3, inputs, outputs, dtype)
    bias = (torch.randn(outputs, device=CUDA) * inputs**0.5).to(dtype)
    simple = Tiles(16, tiles.rows, 3)
    assert torch.equal(bulk_linear(x, weight, bias, tiles), bulk_linear(x, weight, bias, simple))
    assert torch.equal(bulk_gated(x, weight, tiles), bulk_gated(x, weight, simple))


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
    assert y[3].isnan().all() and torch.equal(y[4:], expected[4:]) and torch.equal(y[:3], expected[:3])


@pytest.mark.gpu
def test_a_captured_chain_waits_for_its_inputs():
    """Each product reads the one before it, whose kernel may still run when it starts."""
    x, weight = operands(4, 2048, 2048, torch.bfloat16)
    weight *= 0.03
    torch.cuda.synchronize()  # weights are read before the wait for the kernel before
    tiles = bulk_tiles(x, weight)

    def chain(y: torch.Tensor, in_order: bool) -> torch.Tensor:
        for _ in range(20):
            y = bulk_linear(y, weight, None, tiles)
            if in_order:
                torch.cuda.synchronize()
        return y

    assert_captured_as_in_order(x, chain)
