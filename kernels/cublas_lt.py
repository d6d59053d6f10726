"""Matrix products through cuBLAS Lt, which torch loads, by an algorithm of one's choice.

Legend: T rows of the step, I inputs, O outputs.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

ALIGNMENT = 256  # bytes of an operand's address, which the library presumes
TYPES = {torch.float16: 2, torch.bfloat16: 14}  # cudaDataType_t
_FP32 = 0
_COMPUTE_32F, _TRANSPOSE_A, _OP_T = 68, 3, 1  # cublasComputeType_t, cublasLtMatmulDescAttributes_t, cublasOperation_t
_NOT_SUPPORTED = 15  # cublasStatus_t
_MAX_ALGORITHMS = 16


class Refused(RuntimeError):
    """A call that cuBLAS Lt answered with an error."""


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("status", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclass(frozen=True, slots=True)
class Problem:
    """y [T, O] = x [T, I] @ weight [O, I].T, all dense, on one device."""

    num_rows: int
    num_outputs: int
    num_inputs: int
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One of cuBLAS Lt's for one problem, without a workspace. The library's descriptions of the problem are kept until
    the process ends."""

    problem: Problem
    operation: ctypes.c_void_p
    layouts: tuple[ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]  # of weight, x and y, in the library's order
    choice: ctypes.Array[ctypes.c_uint64]  # cublasLtMatmulAlgo_t

    def __call__(self, x_TI: Tensor, weight_OI: Tensor, out_TO: Tensor) -> None:
        """Refused: by the library, on the host; nothing is multiplied."""
        of_weight, of_x, of_y = self.layouts
        to = ctypes.c_void_p(out_TO.data_ptr())
        one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        with torch.cuda.device(out_TO.device):
            status = _functions().cublasLtMatmul(
                _handle(self.problem.device),
                self.operation,
                ctypes.byref(one),
                ctypes.c_void_p(weight_OI.data_ptr()),
                of_weight,
                ctypes.c_void_p(x_TI.data_ptr()),
                of_x,
                ctypes.byref(zero),
                to,
                of_y,
                to,
                of_y,
                ctypes.byref(self.choice),
                None,
                ctypes.c_size_t(0),
                ctypes.c_void_p(torch.cuda.current_stream(out_TO.device).cuda_stream),
            )
        _check(status, "cublasLtMatmul")


def problem_of(num_rows: int, weight_OI: Tensor) -> Problem:
    num_outputs, num_inputs = weight_OI.shape
    return Problem(num_rows, num_outputs, num_inputs, weight_OI.dtype, weight_OI.device)


@cache
def library() -> ctypes.CDLL | None:
    """cuBLAS Lt as torch has loaded it, None without it."""
    if torch.version.cuda is None:
        return None
    try:
        return ctypes.CDLL(f"libcublasLt.so.{torch.version.cuda.partition('.')[0]}")
    except OSError:
        return None


def _functions() -> ctypes.CDLL:
    functions = library()
    assert functions is not None, "without the library there are no algorithms"
    return functions


@cache
def _handle(device: torch.device) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    with torch.cuda.device(device):
        _check(_functions().cublasLtCreate(ctypes.byref(handle)), "cublasLtCreate")
    return handle


def _check(status: int, call: str) -> None:
    if status:
        raise Refused(f"{call}: cuBLAS status {status}")


def algorithms(problem: Problem) -> list[Algorithm]:
    """Those that cuBLAS thinks fast, its best guess first; empty where it knows none. Refused: by the library."""
    functions, kind = _functions(), TYPES[problem.dtype]

    def made(create: str, *arguments: object) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        _check(getattr(functions, create)(ctypes.byref(handle), *arguments), create)
        return handle

    def layout(rows: int, columns: int) -> ctypes.c_void_p:
        sizes = ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)
        return made("cublasLtMatrixLayoutCreate", kind, *sizes)

    # Columns are dense there, so that what is a row here is a column.
    of_weight = layout(problem.num_inputs, problem.num_outputs)
    of_x = layout(problem.num_inputs, problem.num_rows)
    of_y = layout(problem.num_outputs, problem.num_rows)
    operation = made("cublasLtMatmulDescCreate", _COMPUTE_32F, _FP32)
    transposed = ctypes.c_int(_OP_T)
    _check(
        functions.cublasLtMatmulDescSetAttribute(
            operation, _TRANSPOSE_A, ctypes.byref(transposed), ctypes.c_size_t(ctypes.sizeof(transposed))
        ),
        "cublasLtMatmulDescSetAttribute",
    )
    preference = made("cublasLtMatmulPreferenceCreate")  # its default: no workspace
    found, count = (_Heuristic * _MAX_ALGORITHMS)(), ctypes.c_int()
    with torch.cuda.device(problem.device):
        status = functions.cublasLtMatmulAlgoGetHeuristic(
            _handle(problem.device),
            operation,
            of_weight,
            of_x,
            of_y,
            of_y,
            preference,
            _MAX_ALGORITHMS,
            found,
            ctypes.byref(count),
        )
    _check(functions.cublasLtMatmulPreferenceDestroy(preference), "cublasLtMatmulPreferenceDestroy")
    if status == _NOT_SUPPORTED:
        return []
    _check(status, "cublasLtMatmulAlgoGetHeuristic")
    layouts = of_weight, of_x, of_y
    return [Algorithm(problem, operation, layouts, each.algorithm) for each in found[: count.value] if each.status == 0]
