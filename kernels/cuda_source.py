"""CUDA C++ kernels for Hopper GPUs, compiled by NVRTC at first use.

NVRTC and NVIDIA's Python bindings come with recent CUDA builds of torch; `pip install 'specbench-harness[gpu]'` brings
the bindings to older ones. A kernel is launched as in triton_support.py: it may start while the one before it still
runs, and waits (`griddepcontrol.wait`) before it reads what those that may still run write.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

try:
    from cuda.bindings import driver, nvrtc
except ImportError:  # a build of torch without CUDA
    driver = nvrtc = None

Handle: TypeAlias = Any  # an object of NVIDIA's bindings, which carry no types

ARCH = "sm_90a"  # with what only Hopper has: warpgroup matrix instructions
_CAPABILITY = (9, 0)  # the only one on which such kernels were run; later GPUs can have less shared memory
MAX_SHARED_BYTES = 227 << 10  # of a block, there
_ALIGNMENT = 16  # bytes


@cache
def compiler() -> str | None:
    """NVRTC and its version; None: it is not installed."""
    if nvrtc is None:
        return None
    try:
        major, minor = _result(nvrtc.nvrtcVersion())
    except (RuntimeError, OSError):  # the bindings find no library
        return None
    return f"NVRTC {major}.{minor}"


@cache
def runs_on(device: torch.device) -> bool:
    """Whether kernels of this module's kind run there."""
    return (
        device.type == "cuda"
        and torch.version.hip is None
        and torch.cuda.get_device_capability(device) == _CAPABILITY
        and compiler() is not None
    )


def takes(x_TI: Tensor, weight_OI: Tensor) -> bool:
    """Whether bulk tensor copies read these operands, on a GPU on which they run: numbers of 16 bits, addresses and
    strides that are multiples of 16 bytes."""
    return (
        x_TI.dtype == weight_OI.dtype
        and x_TI.dtype in (torch.bfloat16, torch.float16)
        and runs_on(x_TI.device)
        and not (x_TI.data_ptr() % _ALIGNMENT or weight_OI.data_ptr() % _ALIGNMENT or pitch(x_TI) * 2 % _ALIGNMENT)
    )


def pitch(x_TI: Tensor) -> int:
    """Elements from row to row; the stride of a single row says nothing."""
    return x_TI.stride(0) if x_TI.shape[0] > 1 else x_TI.shape[1]


@cache
def num_multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


@dataclass(frozen=True, slots=True)
class Source:
    """A kernel of a file, with the constants that it is compiled with. The file can include the headers beside it."""

    path: Path
    kernel: str
    constants: tuple[tuple[str, int | str], ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """Blocks, of which each has `threads` and so much shared memory, and of which `cluster` run side by side."""

    blocks: int
    threads: int
    shared_bytes: int
    cluster: int = 1


def binary(source: Source, arch: str) -> bytes:
    """Machine code for `arch`, for example sm_90a. RuntimeError: with the compiler's messages."""
    code = {path.name.encode(): path.read_bytes() for path in [source.path, *source.path.parent.glob("*.cuh")]}
    name, *headers = code
    texts = [code[header] for header in headers]
    program = _result(nvrtc.nvrtcCreateProgram(code[name], name, len(headers), texts, headers))
    options = [f"--gpu-architecture={arch}", "-std=c++20", *(f"-D{name}={value}" for name, value in source.constants)]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    if int(status):
        log = b" " * _result(nvrtc.nvrtcGetProgramLogSize(program))
        _result(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(f"{source.path.name} does not compile for {arch}:\n{log.decode()}")
    made = b" " * _result(nvrtc.nvrtcGetCUBINSize(program))
    _result(nvrtc.nvrtcGetCUBIN(program, made))
    _result(nvrtc.nvrtcDestroyProgram(program))
    return made


def warpgroup_product(columns: int, is_half: bool, first_by_column: bool = False) -> str:
    """The instruction wgmma m64nCOLUMNSk16, spelt out as a string of C, since it names each of a thread's COLUMNS / 2
    sums. Operands after these: both matrices, and whether it adds to the sums."""
    kind, num_sums = "f16" if is_half else "bf16", columns // 2
    first, second, adds = (f"%{num_sums + i}" for i in range(3))
    names = ", ".join(f"%{i}" for i in range(num_sums))
    instruction = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind}"
    operands = f"{{{names}}}, {first}, {second}, adds, 1, 1, {int(first_by_column)}, 0"
    return f'"{{.reg .pred adds; setp.ne.b32 adds, {adds}, 0; {instruction} {operands};}}"'


def warpgroup_sums(columns: int) -> str:
    """The sums of `warpgroup_product`, d[0] and so on, as operands of C."""
    return ", ".join(f'"+f"(d[{i}])' for i in range(columns // 2))


@cache
def load(source: Source, shared_bytes: int, device: torch.device) -> Handle:
    """The kernel on `device`, allowed so much shared memory."""
    with torch.cuda.device(device):
        module = _result(driver.cuModuleLoadData(binary(source, ARCH)))
        function = _result(driver.cuModuleGetFunction(module, source.kernel.encode()))
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _result(driver.cuFuncSetAttribute(function, most, shared_bytes))
    return function


def tensor_map(matrix: Tensor, shape: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]) -> Handle:
    """What a bulk tensor copy needs to know of bf16 or fp16 numbers, of which it copies a box.

    Sizes from the innermost dimension, which is dense; strides of the others, in elements: multiples of 8, in any order
    (the driver takes them, though its manual has them rise). The address is a multiple of 16. A box has innermost lines
    of 128 bytes, whose 16-byte words are swizzled; outside of `shape` it reads zeros.
    """
    return _tensor_map(matrix.data_ptr(), matrix.dtype == torch.float16, shape, strides, box)


@lru_cache(maxsize=4096)
def _tensor_map(
    address: int, is_half: bool, shape: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]
) -> Handle:
    kind = driver.CUtensorMapDataType
    return _result(
        driver.cuTensorMapEncodeTiled(
            kind.CU_TENSOR_MAP_DATA_TYPE_FLOAT16 if is_half else kind.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            len(shape),
            address,
            [driver.cuuint64_t(size) for size in shape],
            [driver.cuuint64_t(2 * stride) for stride in strides],
            [driver.cuuint32_t(size) for size in box],
            [driver.cuuint32_t(1) for _ in shape],
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,  # 256B: up to 5% slower
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )


def launch(function: Handle, grid: Grid, on: torch.device, *arguments: Handle | Tensor | float | None) -> None:
    """Launches early, on the current stream of `on`. Arguments: tensor maps, tensors, None for no tensor, numbers."""
    with torch.cuda.device(on):
        stream = torch.cuda.current_stream(on).cuda_stream
        values = [_argument(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(address for _, address in values))
        _result(driver.cuLaunchKernelEx(_launch_config(grid, stream), function, ctypes.addressof(pointers), 0))


@lru_cache(maxsize=1024)
def _launch_config(grid: Grid, stream: int) -> Handle:
    config, ids = driver.CUlaunchConfig(), driver.CUlaunchAttributeID
    config.gridDimX, config.gridDimY, config.gridDimZ = grid.blocks, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = grid.threads, 1, 1
    config.sharedMemBytes, config.hStream = grid.shared_bytes, stream
    early = driver.CUlaunchAttributeValue()
    early.programmaticStreamSerializationAllowed = 1
    attributes = [_attribute(ids.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, early)]
    if grid.cluster > 1:
        together = driver.CUlaunchAttributeValue()
        together.clusterDim.x, together.clusterDim.y, together.clusterDim.z = grid.cluster, 1, 1
        attributes.append(_attribute(ids.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, together))
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config


def _attribute(kind: Handle, value: Handle) -> Handle:
    attribute = driver.CUlaunchAttribute()
    attribute.id, attribute.value = kind, value
    return attribute


def _argument(value: Handle | Tensor | float | None) -> tuple[Handle, int]:
    """What keeps an argument alive during a launch, and its address."""
    if value is None or isinstance(value, Tensor):
        held: Handle = ctypes.c_void_p(0 if value is None else value.data_ptr())
    elif isinstance(value, int):
        held = ctypes.c_int(value)
    elif isinstance(value, float):
        held = ctypes.c_float(value)
    else:
        return value, int(value.getPtr())
    return held, ctypes.addressof(held)


def _result(answer: tuple[Handle, ...]) -> Handle:
    """What a call of the driver or of NVRTC returns beside its status. RuntimeError: it failed."""
    status, *values = answer
    if int(status):
        raise RuntimeError(f"CUDA: {status.name}")
    return values[0] if len(values) == 1 else values
