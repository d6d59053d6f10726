"""Matrix products of 49 to 128 and of 145 to 160 rows on Hopper GPUs, in CUDA C++ (wgmma_gemm.cu).

Between the few rows of a decode step (bulk_gemm.py) and those of prompts (cuBLAS) lie the rows of many requests, or of
drafts that are verified. Weights are read before the kernel waits for the one before it, which must not write them;
gate and up are multiplied in one kernel. A row has the same sums wherever this kernel takes it: among 49 and among 80
rows, and for large weights among 160.
Legend: T rows of the step, I inputs, O outputs, X = 2*O (gate rows, then up rows).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from specbench.kernels import bulk_gemm, cuda_source

ROW_BLOCKS = (64, 80, 96, 128, 160)  # numbers of rows are padded to one of these: each is a compilation
MIN_ROWS, MAX_ROWS = bulk_gemm.MAX_ROWS + 1, ROW_BLOCKS[-1]
_PADDED_MOST = range(129, 145)  # numbers of rows that no block fits well
_WARPGROUPS = 2  # that multiply; a third copies
_LINE = 64  # inputs of a stage: 128 bytes of a row
_STAGING_BYTES = _WARPGROUPS * 4 * 16 * 48  # through which outputs leave
_MAX_STAGES = 8
_MIN_ELEMENTS = 1 << 21
_OUTPUTS, _GATED_OUTPUTS = 128, 256  # of a block, gate and up counted
_MOST_TILES = 2  # of a block
_NUM_SMS = 132  # multiprocessors of an H100 or H200
# Clusters that run at once on them, by blocks of a cluster (cuOccupancyMaxActiveClusters on an H200).
_CLUSTERS = {4: 30, 3: 39, 2: 66}
_FILE = Path(__file__).with_name("wgmma_gemm.cu")


@dataclass(frozen=True, slots=True)
class Tiles:
    """Outputs that a block multiplies at a time (gate and up counted), padded rows, and the number of blocks that have
    a part of the inputs each."""

    outputs: int
    rows: int
    split: int = 1

    @property
    def num_stages(self) -> int:
        return min((cuda_source.MAX_SHARED_BYTES - _STAGING_BYTES) // (self._stage_bytes + 16), _MAX_STAGES)

    @property
    def shared_bytes(self) -> int:
        barriers = 2 * 8 * self.num_stages
        return self.num_stages * self._stage_bytes + _STAGING_BYTES + barriers

    @property
    def _stage_bytes(self) -> int:
        return (self.outputs + self.rows) * _LINE * 2

    @property
    def registers(self) -> dict[str, int]:
        """Of a thread: at first, of one that copies, of one that multiplies. As few as hold the sums (256 outputs of
        128 rows in two parts spill one): the blocks of the kernel before must fit beside these, or no weights are read
        early."""
        sums = self.outputs // (64 * _WARPGROUPS) * self.rows // 2
        while_they_meet = sums // self.split if self.split > 1 else 0
        copying, multiplying = 32, min(_multiple_of_8(sums + max(40, 24 + while_they_meet)), 232)
        for_one_instruction = _multiple_of_8(self.rows // 2 + 28)
        at_first = max(_multiple_of_8(-(-(_WARPGROUPS * multiplying + copying) // 3)), for_one_instruction)
        multiplying = (3 * at_first - copying) // (8 * _WARPGROUPS) * 8
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

    Measured on an H200 (benchmarks/forward_gpu.py): of the numbers of parts of the inputs with which all clusters run
    at once, the largest is best. Weights that give work to few multiprocessors gain with few rows only, and so do those
    whose second wave of tiles is small. An output projection to a vocabulary is up to 3% faster in Triton or cuBLAS. In
    rounds of 160 rows one after another (sustained_rounds.py there) all four products of a layer gain together; 320 and
    640 rows lose, and so does a pass over 144, padded to 160.
    """
    parts = 2 if is_gated else 1
    if num_outputs * num_inputs < _MIN_ELEMENTS or num_outputs % (8 * parts) or num_inputs % 8:
        return None
    outputs = _GATED_OUTPUTS if is_gated else _OUTPUTS
    num_tiles = -(-num_outputs // outputs)
    if num_tiles > _MOST_TILES * num_sms or num_rows in _PADDED_MOST:
        return None
    rows = next(block for block in ROW_BLOCKS if block >= num_rows)
    fitting = (split for split, clusters in _CLUSTERS.items() if num_tiles * _NUM_SMS <= clusters * num_sms)
    split = next((split for split in fitting if num_inputs >= split * _LINE), 1)
    num_blocks = num_tiles * split
    num_waves = -(-num_blocks // num_sms)
    return Tiles(outputs, rows, split) if num_blocks >= _busy(rows) * num_waves * num_sms else None


def _busy(rows: int) -> float:
    """The share of multiprocessors that must have work, on average over all waves of tiles."""
    return 0.33 if rows <= 80 else 0.6


def wgmma_linear(x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, tiles: Tiles) -> Tensor:
    """`skinny_linear_ref`: `x @ weight.T + bias` as a dense [T, O] tensor."""
    return _launch(x_TI, weight_OI, bias_O, False, tiles)


def wgmma_gated(x_TI: Tensor, gate_up_XI: Tensor, tiles: Tiles) -> Tensor:
    """`skinny_gated_ref`: `silu(x @ gate.T) * (x @ up.T)` as a dense [T, O] tensor."""
    return _launch(x_TI, gate_up_XI, None, True, tiles)


@cache
def source(tiles: Tiles, is_gated: bool, is_half: bool) -> cuda_source.Source:
    constants: dict[str, int | str] = dict(
        TILES=tiles.outputs // (64 * _WARPGROUPS),
        ROWS=tiles.rows,
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
    assert 1 < num_rows <= tiles.rows and num_outputs % 8 == 0 and num_inputs % 8 == 0
    device = x_TI.device
    out_TO = torch.empty((num_rows, num_outputs), dtype=x_TI.dtype, device=device)
    function = cuda_source.load(source(tiles, is_gated, x_TI.dtype == torch.float16), tiles.shared_bytes, device)
    num_tiles = -(-num_outputs // (tiles.outputs // parts))
    if tiles.split == 1:  # blocks that meet have one tile each: sums overwrite what the next tile's copies would
        num_tiles = min(num_tiles, cuda_source.num_multiprocessors(device))
    cuda_source.launch(
        function,
        cuda_source.Grid(num_tiles * tiles.split, 128 * (_WARPGROUPS + 1), tiles.shared_bytes, tiles.split),
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
