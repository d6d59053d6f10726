"""Matrix products of 49 to 320 rows on Hopper GPUs, in CUDA C++ (wgmma_gemm.cu).

Between the few rows of a decode step (bulk_gemm.py) and those of prompts (cuBLAS) lie the rows of many requests, or of
drafts that are verified. Weights are read before the kernel waits for the one before it, which must not write them;
gate and up are multiplied in one kernel. A row has the same sums wherever this kernel takes it among up to 80 rows, 81
to 160, or 161 to 320: in each range the inputs are cut into the same number of parts.
Legend: T rows of the step, I inputs, O outputs, X = 2*O (gate rows, then up rows).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from specbench.kernels import bulk_gemm, cuda_source

BLOCK_ROWS = (64, 80, 96, 128, 160)  # rows of a block: numbers of rows are padded to these, each is a compilation
MIN_ROWS, MAX_ROWS = bulk_gemm.MAX_ROWS + 1, 2 * BLOCK_ROWS[-1]
_WELL_PADDED = 128  # with more rows than this, padding included, cuBLAS is faster where a tenth is padding
_LINE = 64  # inputs of a stage: 128 bytes of a row
_STAGING_BYTES = 4 * 16 * 48  # of a warpgroup, through which outputs leave
_MAX_STAGES = 8
_MIN_ELEMENTS = 1 << 21
_MOST_TILES = 2  # of a block
_NUM_SMS = 132  # multiprocessors of an H100 or H200
# By blocks of a cluster, in descending order: clusters that run at once (cuOccupancyMaxActiveClusters on an H200).
_CLUSTERS = {7: 15, 4: 30, 3: 39, 2: 66}
_LONG_PART = 1280  # inputs: with shorter ones, seven blocks of a cluster meet for too little
_FILE = Path(__file__).with_name("wgmma_gemm.cu")


@dataclass(frozen=True, slots=True)
class Tiles:
    """What a thread block multiplies at a time: `outputs` (gate and up counted) by `rows`. `split`: into how many parts
    the inputs are cut, each for a thread block of its own. `row_blocks`: into how many blocks the rows are cut."""

    outputs: int
    rows: int
    split: int = 1
    row_blocks: int = 1

    def num_tiles(self, num_outputs: int) -> int:
        """Of so many outputs (gate and up counted), in all blocks of rows."""
        return -(-num_outputs // self.outputs) * self.row_blocks

    def num_blocks(self, num_outputs: int) -> int:
        """If each multiplies one part of one tile."""
        return self.num_tiles(num_outputs) * self.split

    @property
    def groups(self) -> int:
        """Warpgroups that multiply; one more copies."""
        return 3 if self.outputs == 192 else 2

    @property
    def cluster(self) -> int:
        """Thread blocks side by side: those whose sums meet, or a pair that shares weights."""
        return 2 if self.split == 1 and self.row_blocks % 2 == 0 else self.split

    @property
    def num_stages(self) -> int:
        return min(
            (cuda_source.MAX_SHARED_BYTES - self.groups * _STAGING_BYTES) // (self._stage_bytes + 16), _MAX_STAGES
        )

    @property
    def shared_bytes(self) -> int:
        barriers = 2 * 8 * self.num_stages
        return self.num_stages * self._stage_bytes + self.groups * _STAGING_BYTES + barriers

    @property
    def _stage_bytes(self) -> int:
        return (self.outputs + self.rows) * _LINE * 2

    @property
    def registers(self) -> dict[str, int]:
        """Of a thread: at first, of one that copies, of one that multiplies. As few as hold the sums, because the
        blocks of the kernel before must fit beside these, or no weights are read early. With NVRTC 13.0 a thread spills
        about 60 registers while sums of 256 outputs and 160 rows meet, elsewhere at most one, none in a main loop."""
        sums = self.outputs // (64 * self.groups) * self.rows // 2
        while_they_meet = sums // self.split if self.split > 1 else 0
        copying, multiplying = 32, min(_multiple_of_8(sums + max(40, 24 + while_they_meet)), 232)
        for_one_instruction = _multiple_of_8(self.rows // 2 + 28)
        at_first = max(
            _multiple_of_8(-(-(self.groups * multiplying + copying) // (self.groups + 1))), for_one_instruction
        )
        multiplying = ((self.groups + 1) * at_first - copying) // (8 * self.groups) * 8
        return dict(REGISTERS=at_first, COPY_REGISTERS=copying, MULTIPLY_REGISTERS=multiplying)


def _multiple_of_8(number: int) -> int:
    return -(-number // 8) * 8


def wgmma_tiles(x_TI: Tensor, weight_OI: Tensor, is_gated: bool = False) -> Tiles | None:
    """The launch of `wgmma_linear` or `wgmma_gated` for these operands; None where other kernels take them."""
    if not MIN_ROWS <= x_TI.shape[0] <= MAX_ROWS or not cuda_source.takes(x_TI, weight_OI):
        return None
    return _met_tiles(*weight_OI.shape, is_gated, x_TI.dtype == torch.float16, x_TI.device)[x_TI.shape[0] - MIN_ROWS]


@cache
def _met_tiles(
    num_outputs: int, num_inputs: int, is_gated: bool, is_half: bool, device: torch.device
) -> list[Tiles | None]:
    """The launch by number of rows, from MIN_ROWS on, compiled as in bulk_gemm.py."""
    num_sms = cuda_source.num_multiprocessors(device)
    numbers = range(MIN_ROWS, MAX_ROWS + 1)
    tiles = [choose_tiles(rows, num_outputs, num_inputs, is_gated, num_sms) for rows in numbers]
    for each in filter(None, dict.fromkeys(tiles)):
        cuda_source.load(source(each, is_gated, is_half), each.shared_bytes, device)
    return tiles


@cache
def choose_tiles(
    num_rows: int, num_outputs: int, num_inputs: int, is_gated: bool, num_sms: int = _NUM_SMS
) -> Tiles | None:
    """The launch of a shape; None where other kernels are faster, and for sizes that bulk copies do not take.

    Measured on an H200 (benchmarks/kernels.md, "Products of 49 to 320 rows in CUDA C++"). Weights that give work to few
    multiprocessors gain with few rows only, and so do those whose second wave of tiles is small. An output projection
    to a vocabulary is up to 3% faster in Triton or cuBLAS, and 144 rows, padded to 160, are faster in cuBLAS. From 160
    rows on all four products of a layer gain more together than each by itself.
    """
    parts = 2 if is_gated else 1
    if num_outputs * num_inputs < _MIN_ELEMENTS or num_outputs % (8 * parts) or num_inputs % 8:
        return None
    row_blocks = -(-num_rows // BLOCK_ROWS[-1])
    rows = next(block for block in BLOCK_ROWS if block * row_blocks >= num_rows)
    padded = rows * row_blocks
    if padded > _WELL_PADDED and num_rows <= 0.9 * padded:
        return None
    widths = (256,) if is_gated else (128,) if row_blocks == 1 else (128, 192)
    whole = (Tiles(outputs, rows, row_blocks=row_blocks) for outputs in widths)
    candidates = (_split(tiles, num_outputs, num_inputs, num_sms) for tiles in whole)
    busiest = max(candidates, key=lambda tiles: _busy(tiles.num_blocks(num_outputs), num_sms))
    return busiest if _gains(busiest, num_outputs, is_gated, num_sms) else None


def _split(tiles: Tiles, num_outputs: int, num_inputs: int, num_sms: int) -> Tiles:
    """In as many parts of the inputs as still have all clusters run at once."""
    num_tiles = tiles.num_tiles(num_outputs)
    most = 7 if tiles.rows > 80 and num_inputs >= 7 * _LONG_PART else min(4, num_inputs // _LINE)
    fitting = (split for split, clusters in _CLUSTERS.items() if num_tiles * _NUM_SMS <= clusters * num_sms)
    return replace(tiles, split=next((split for split in fitting if split <= most), 1))


def _busy(num_blocks: int, num_sms: int) -> float:
    """The share of multiprocessors that have work, on average over all waves of blocks."""
    return num_blocks / (-(-num_blocks // num_sms) * num_sms)


def _gains(tiles: Tiles, num_outputs: int, is_gated: bool, num_sms: int) -> bool:
    """Whether it keeps enough multiprocessors busy to beat cuBLAS; how many are enough depends on the rows."""
    num_tiles = tiles.num_tiles(num_outputs)
    if num_tiles > _MOST_TILES * num_sms:
        return False
    if tiles.rows * tiles.row_blocks <= 80:
        least = 0.33
    elif tiles.row_blocks > 1:
        least = 0.84  # gate and up of an 8B, the least busy of what was measured: 224 tiles in two waves
    else:
        least = 0.5 if is_gated and num_tiles <= num_sms else 0.6
    return _busy(tiles.num_blocks(num_outputs), num_sms) >= least


def wgmma_linear(x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, tiles: Tiles) -> Tensor:
    """`skinny_linear_ref`: `x @ weight.T + bias` as a dense [T, O] tensor."""
    return _launch(x_TI, weight_OI, bias_O, False, tiles)


def wgmma_gated(x_TI: Tensor, gate_up_XI: Tensor, tiles: Tiles) -> Tensor:
    """`skinny_gated_ref`: `silu(x @ gate.T) * (x @ up.T)` as a dense [T, O] tensor."""
    return _launch(x_TI, gate_up_XI, None, True, tiles)


@cache
def source(tiles: Tiles, is_gated: bool, is_half: bool) -> cuda_source.Source:
    assert tiles.outputs % (64 * tiles.groups) == 0, "warpgroups multiply 64 outputs at a time"
    constants: dict[str, int | str] = dict(
        GROUPS=tiles.groups,
        TILES=tiles.outputs // (64 * tiles.groups),
        ROWS=tiles.rows,
        ROW_BLOCKS=tiles.row_blocks,
        STAGES=tiles.num_stages,
        SPLIT=tiles.split,
        GATED=int(is_gated),
        HALF=int(is_half),
        **tiles.registers,
        MULTIPLY=cuda_source.warpgroup_product(tiles.rows, is_half),
        SUMS=cuda_source.warpgroup_sums(tiles.rows),
    )
    return cuda_source.Source(_FILE, "wgmma_gemm", tuple(constants.items()))


def _x_map(x_TI: Tensor, rows: int) -> cuda_source.Handle:
    """Dimensions from the innermost: inputs, rows."""
    return cuda_source.tensor_map(x_TI, x_TI.shape[::-1], x_TI.stride()[:1], (_LINE, rows))


def _weight_map(weight_OI: Tensor, parts: int, outputs: int) -> cuda_source.Handle:
    """Dimensions from the innermost: inputs, outputs, gate and up."""
    num_outputs, num_inputs = weight_OI.shape[0] // parts, weight_OI.shape[1]
    strides = num_inputs, num_outputs * num_inputs
    return cuda_source.tensor_map(weight_OI, (num_inputs, num_outputs, parts), strides, (_LINE, outputs, 1))


def _launch(x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, is_gated: bool, tiles: Tiles) -> Tensor:
    num_rows, num_inputs = x_TI.shape
    parts = 2 if is_gated else 1
    num_outputs = weight_OI.shape[0] // parts
    assert x_TI.stride(1) == 1 and weight_OI.is_contiguous(), "columns must be dense"
    assert weight_OI.shape == (parts * num_outputs, num_inputs) and weight_OI.dtype == x_TI.dtype
    assert bias_O is None or (bias_O.dtype == x_TI.dtype and bias_O.is_contiguous())
    assert num_inputs > _LINE * (tiles.split - 1), "a block without inputs would wait for ever"
    assert 1 < num_rows <= tiles.rows * tiles.row_blocks and num_outputs % 8 == 0 and num_inputs % 8 == 0
    device = x_TI.device
    out_TO = torch.empty((num_rows, num_outputs), dtype=x_TI.dtype, device=device)
    function = cuda_source.load(source(tiles, is_gated, x_TI.dtype == torch.float16), tiles.shared_bytes, device)
    num_blocks = tiles.num_blocks(parts * num_outputs)
    if tiles.split == 1:  # blocks that meet have one tile each: sums overwrite what the next tile's copies would
        num_blocks = min(num_blocks, cuda_source.num_multiprocessors(device) // tiles.cluster * tiles.cluster)
    cuda_source.launch(
        function,
        cuda_source.Grid(num_blocks, 128 * (tiles.groups + 1), tiles.shared_bytes, tiles.cluster),
        device,
        _x_map(x_TI, tiles.rows),
        _weight_map(weight_OI, parts, tiles.outputs // 2),
        bias_O,
        out_TO,
        num_rows,
        num_outputs,
        -(-num_inputs // _LINE),
    )
    return out_TO
