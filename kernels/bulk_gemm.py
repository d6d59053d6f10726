"""Matrix products of few rows on Hopper GPUs, in CUDA C++ (bulk_gemm.cu), at the speed of reading the weights.

Other GPUs use Triton's products of few rows (skinny_gemm.py), small weights cuBLAS; wgmma_gemm.py takes more rows. A
row has the same sum alone and among up to 48 rows. Weights are read before the kernel waits for the one before it,
which must not write them. A norm before or after the product can be a part of it: deferred_norm.py.
Legend: T rows of the step, I inputs, O outputs, X = 2*O (gate rows, then up rows).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import inf
from pathlib import Path

import torch
from torch import Tensor

from specbench.kernels import cuda_source
from specbench.kernels.deferred_norm import AddNorm, DeferredNorm, Part, Rows

ROW_BLOCKS = (8, 16, 32, 40, 48)  # numbers of rows are padded to one of these: each is a compilation
MAX_ROWS = ROW_BLOCKS[-1]
_SLICES = 4  # of the inputs, and warps that multiply
_SCALERS = 3  # warps that compute the scales of a deferred norm
_LINE = 64  # inputs of a slice in a row: 128 bytes
_OUTPUTS = (16, 32, 48, 64)  # of a warp
_MORE_OUTPUTS = (
    80,
    96,
    112,
)  # its sums of 112 for 48 rows take 246 registers, in pairs of blocks 255; if added, some spill
_FEW_ROWS = 16  # which are not worth copying less often, nor are more of smaller weights than these
_LARGE_INPUTS, _LARGE_ELEMENTS = 4096, 1 << 24
_MIN_ELEMENTS = 1 << 18
# Of weights in a stage, by padded rows: the thread that starts copies could not keep up with smaller ones. With 32 rows
# two lines a copy gain 0.3% of a pass over many keys; with 40, where fewer stages fit, a variant of them loses as much.
_MIN_STAGE_BYTES = {32: 20 << 10, 40: 8 << 10, 48: 8 << 10}
_MAX_LINES = 48  # of slices, in all stages
_PART = 16  # outputs whose squares are added up for a norm
_NUM_SMS = 132  # multiprocessors of an H100 or H200
_FILE = Path(__file__).with_name("bulk_gemm.cu")


@dataclass(frozen=True, slots=True)
class Tiles:
    """Outputs that a cluster of `split` blocks multiplies at a time (gate and up counted), padded rows, stages in
    shared memory, and slices of which a stage holds a line."""

    outputs: int
    rows: int
    num_stages: int
    split: int = 1
    held: int = _SLICES

    @property
    def shared_bytes(self) -> int:
        sums = _SLICES * self.rows * self.outputs // self.split * 4
        scales = self.rows * 4
        return sums + scales + self.num_stages * (self.stage_bytes + 2 * 8)

    @property
    def stage_bytes(self) -> int:
        return (self.outputs + self.rows) * self.held * _LINE * 2

    @property
    def turns(self) -> int:
        """Stages that hold a line of each slice of a block; their number divides that of all stages."""
        return _SLICES // self.split // self.held


def bulk_tiles(x_TI: Tensor, weight_OI: Tensor, is_gated: bool = False, part: Part = Part.NONE) -> Tiles | None:
    """The launch of a product of these operands; None where this kernel does not take it, or not this part of a
    norm."""
    if not 0 < x_TI.shape[0] <= MAX_ROWS or not cuda_source.takes(x_TI, weight_OI):
        return None
    if part != Part.NONE and x_TI.dtype == torch.float16:  # rows before their division can exceed its numbers
        return None
    if part == Part.ADDS and weight_OI.shape[0] % _LINE:  # the product that reads the rows takes whole lines
        return None
    return _met_tiles(*weight_OI.shape, is_gated, x_TI.dtype == torch.float16, part, x_TI.device)[x_TI.shape[0]]


@cache
def _met_tiles(
    num_outputs: int, num_inputs: int, is_gated: bool, is_half: bool, part: Part, device: torch.device
) -> list[Tiles | None]:
    """The launch by number of rows. All are compiled at once, so that no number of rows that a run meets later is
    compiled within measured time."""
    num_parts = {Part.NONE: 0, Part.ADDS: num_outputs, Part.SCALES: num_inputs}[part] // _PART
    num_sms = cuda_source.num_multiprocessors(device)
    tiles = [choose_tiles(max(rows, 1), num_outputs, num_inputs, is_gated, num_sms) for rows in range(MAX_ROWS + 1)]
    for each in filter(None, dict.fromkeys(tiles)):
        cuda_source.load(source(each, is_gated, is_half, part, num_parts), each.shared_bytes, device)
    return tiles


@cache
def choose_tiles(
    num_rows: int, num_outputs: int, num_inputs: int, is_gated: bool = False, num_sms: int = _NUM_SMS
) -> Tiles | None:
    """The launch of a shape by the bytes that the busiest multiprocessor copies; None for small weights and inputs that
    leave something of a line over. `num_outputs` counts gate and up. Rows come from the L2 cache and count a quarter.

    Measured on an H200 (benchmarks/kernels.md): as many stages as fit are best, and so is one block a multiprocessor.
    Rows are copied less often where a block has more outputs, or half of the inputs: with 32, 40 and 48 rows sustained
    rounds of Llama-3.1-8B are 3 to 4% shorter so, with up to 8 rows and in Qwen2.5-1.5B up to 3% longer. Shards of
    several GPUs were not measured. From 64 rows on the copies of x, which each block made for at most 64 outputs, cost
    more than cuBLAS takes.
    """
    if num_outputs * num_inputs < _MIN_ELEMENTS or num_inputs % _LINE:
        return None
    rows = next(block for block in ROW_BLOCKS if block >= num_rows)

    def cost(tiles: Tiles) -> float:
        rounds = -(-num_outputs // (tiles.outputs * (num_sms // tiles.split)))
        fits = tiles.num_stages >= max(2 * tiles.turns, 3) and (tiles.split == 1 or rounds == 1)
        return rounds * (tiles.outputs + rows / 4) / tiles.split if fits else inf

    is_large = num_inputs >= _LARGE_INPUTS and num_outputs * num_inputs >= _LARGE_ELEMENTS
    if rows <= _FEW_ROWS or not is_large:
        return min((fitting(outputs, rows) for outputs in _OUTPUTS), key=cost)
    splits = (1,) if is_gated else (1, 2)  # gate and up in pairs of blocks: not measured
    of_warp = _OUTPUTS + _MORE_OUTPUTS
    return min((_with_small_stages(outputs * split, rows, split) for split in splits for outputs in of_warp), key=cost)


def fitting(outputs: int, rows: int, split: int = 1, held: int = _SLICES) -> Tiles:
    """With as many stages as fit."""
    empty = Tiles(outputs, rows, 0, split, held)
    room = (cuda_source.MAX_SHARED_BYTES - empty.shared_bytes) // (empty.stage_bytes + 16)
    return replace(empty, num_stages=min(room, _MAX_LINES // held) // empty.turns * empty.turns)


def _with_small_stages(outputs: int, rows: int, split: int) -> Tiles:
    of_block = _SLICES // split
    large_enough = (held for held in (1, 2) if outputs * held * _LINE * 2 >= _MIN_STAGE_BYTES[rows])
    return fitting(outputs, rows, split, min(next(large_enough, of_block), of_block))


def bulk_linear(x: Rows, weight_OI: Tensor, bias_O: Tensor | None, tiles: Tiles) -> Tensor:
    """`skinny_linear_ref`: `x @ weight.T + bias` as a dense [T, O] tensor."""
    return _launch(_Input.of(x), weight_OI, bias_O, False, tiles)


def bulk_gated(x: Rows, gate_up_XI: Tensor, tiles: Tiles) -> Tensor:
    """`skinny_gated_ref`: `silu(x @ gate.T) * (x @ up.T)` as a dense [T, O] tensor."""
    return _launch(_Input.of(x), gate_up_XI, None, True, tiles)


def bulk_add(x_TI: Tensor, weight_HI: Tensor, bias_H: Tensor | None, tiles: Tiles, norm: AddNorm) -> DeferredNorm:
    """`add_ref` of `bulk_linear`, with parts of 16."""
    assert norm.residual_TH.shape == (x_TI.shape[0], weight_HI.shape[0]) and norm.residual_TH.is_contiguous()
    assert norm.residual_TH.dtype == norm.weight_H.dtype == x_TI.dtype and norm.weight_H.is_contiguous()
    squares_TP = x_TI.new_empty(x_TI.shape[0], weight_HI.shape[0] // _PART, dtype=torch.float32)
    operand = _Input(x_TI, Part.ADDS, squares_TP, norm.eps, norm.residual_TH, norm.weight_H)
    return DeferredNorm(_launch(operand, weight_HI, bias_H, False, tiles), squares_TP, norm.eps)


@dataclass(frozen=True, slots=True)
class _Input:
    """Rows of a product, and what its kernel takes of a norm."""

    rows_TI: Tensor
    part: Part = Part.NONE
    squares_TP: Tensor | None = None
    eps: float = 0.0
    residual_TH: Tensor | None = None
    norm_weight_H: Tensor | None = None

    @classmethod
    def of(cls, x: Rows) -> _Input:
        if not isinstance(x, DeferredNorm):
            return cls(x)
        assert x.squares_TP.is_contiguous() and x.squares_TP.dtype == torch.float32
        return cls(x.rows_TH, Part.SCALES, x.squares_TP, x.eps)

    @property
    def num_parts(self) -> int:
        return 0 if self.squares_TP is None else self.squares_TP.shape[1]


def source(
    tiles: Tiles, is_gated: bool, is_half: bool, part: Part = Part.NONE, num_parts: int = 0
) -> cuda_source.Source:
    constants = dict(
        M=tiles.outputs,
        SPLIT=tiles.split,
        HELD=tiles.held,
        STAGES=tiles.num_stages,
        NT=tiles.rows // 8,
        GATED=int(is_gated),
        HALF=int(is_half),
        ADDS=int(part == Part.ADDS),
        SCALES=int(part == Part.SCALES),
        PARTS=num_parts,
        SCALERS=_SCALERS if part == Part.SCALES else 0,
    )
    return cuda_source.Source(_FILE, "bulk_gemm", tuple(constants.items()))


def _x_map(x_TI: Tensor, held: int) -> cuda_source.Handle:
    """Dimensions from the innermost: inputs of a line, rows, lines."""
    num_rows, num_inputs = x_TI.shape
    lines = num_inputs // _LINE
    return cuda_source.tensor_map(
        x_TI, (_LINE, num_rows, lines), (cuda_source.pitch(x_TI), _LINE), (_LINE, num_rows, held)
    )


def _weight_map(weight_OI: Tensor, parts: int, outputs: int, held: int) -> cuda_source.Handle:
    """Dimensions from the innermost: inputs of a line, outputs, gate and up, lines."""
    num_outputs, num_inputs = weight_OI.shape[0] // parts, weight_OI.shape[1]
    shape = _LINE, num_outputs, parts, num_inputs // _LINE
    strides = num_inputs, num_outputs * num_inputs, _LINE
    return cuda_source.tensor_map(weight_OI, shape, strides, (_LINE, outputs, parts, held))


def _launch(x: _Input, weight_OI: Tensor, bias_O: Tensor | None, is_gated: bool, tiles: Tiles) -> Tensor:
    x_TI = x.rows_TI
    num_rows, num_inputs = x_TI.shape
    parts = 2 if is_gated else 1
    num_outputs, outputs = weight_OI.shape[0] // parts, tiles.outputs // parts
    assert x_TI.stride(1) == 1 and weight_OI.is_contiguous(), "columns must be dense"
    assert weight_OI.shape[0] % parts == 0 and weight_OI.dtype == x_TI.dtype
    assert bias_O is None or (bias_O.dtype == x_TI.dtype and bias_O.is_contiguous())
    assert 0 < num_rows <= tiles.rows and weight_OI.shape[1] == num_inputs and num_inputs % _LINE == 0
    device = x_TI.device
    out_TO = torch.empty((num_rows, num_outputs), dtype=x_TI.dtype, device=device)
    made = source(tiles, is_gated, x_TI.dtype == torch.float16, x.part, x.num_parts)
    num_clusters = min(-(-num_outputs // outputs), cuda_source.num_multiprocessors(device) // tiles.split)
    assert tiles.split == 1 or num_outputs <= num_clusters * outputs, "a cluster has one tile"
    num_warps = _SLICES + 1 + (_SCALERS if x.part == Part.SCALES else 0)
    cuda_source.launch(
        cuda_source.load(made, tiles.shared_bytes, device),
        cuda_source.Grid(num_clusters * tiles.split, 32 * num_warps, tiles.shared_bytes, tiles.split),
        device,
        _x_map(x_TI, tiles.held),
        _weight_map(weight_OI, parts, outputs, tiles.held),
        bias_O,
        out_TO,
        num_rows,
        num_outputs,
        num_inputs,
        x.residual_TH,
        x.norm_weight_H,
        x.squares_TP,
        x.eps,
    )
    return out_TO
