"""CUDA C++ kernels for Hopper GPUs, compiled by NVRTC at first use.

NVRTC and NVIDIA's Python bindings come with recent CUDA builds of torch; `pip install 'specbench-harness[gpu]'` brings
the bindings to older ones. A kernel is launched as in triton_support.py: it may start while the one before it still
runs, and waits (`griddepcontrol.wait`) before it reads what others write.
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

_CAPABILITY = (9, 0)  # the only one on which such kernels were run; later GPUs can have less shared memory
MAX_SHARED_BYTES = 227 << 10  # of a block, there


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


@cache
def num_multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


@dataclass(frozen=True, slots=True)
class Source:
    """A kernel of a file, with the constants that it is compiled with."""

    path: Path
    kernel: str
    constants: tuple[tuple[str, int], ...]


def binary(source: Source, arch: str) -> bytes:
    """Machine code for `arch`, for example sm_90. RuntimeError: with the compiler's messages."""
    program = _result(nvrtc.nvrtcCreateProgram(source.path.read_bytes(), source.path.name.encode(), 0, [], []))
    options = [f"--gpu-architecture={arch}", "-std=c++20", *(f"-D{name}={value}" for name, value in source.constants)]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    if int(status):
        log = b" " * _result(nvrtc.nvrtcGetProgramLogSize(program))
        _result(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(f"{source.path.name} does not compile for {arch}:\n{log.decode()}")
    code = b" " * _result(nvrtc.nvrtcGetCUBINSize(program))
    _result(nvrtc.nvrtcGetCUBIN(program, code))
    _result(nvrtc.nvrtcDestroyProgram(program))
    return code


@cache
def load(source: Source, shared_bytes: int, device: torch.device) -> Handle:
    """The kernel on `device`, allowed so much shared memory."""
    major, minor = torch.cuda.get_device_capability(device)
    with torch.cuda.device(device):
        module = _result(driver.cuModuleLoadData(binary(source, f"sm_{major}{minor}")))
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
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,  # with 256B up to 5% slower
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )


def launch(
    function: Handle,
    num_blocks: int,
    num_threads: int,
    shared_bytes: int,
    on: torch.device,
    *arguments: Handle | Tensor | int | None,
) -> None:
    """Launches early, on the current stream of `on`. Arguments: tensor maps, tensors, None for no tensor, ints."""
    with torch.cuda.device(on):
        stream = torch.cuda.current_stream(on).cuda_stream
        values = [_argument(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(address for _, address in values))
        config = _launch_config(num_blocks, num_threads, shared_bytes, stream)
        _result(driver.cuLaunchKernelEx(config, function, ctypes.addressof(pointers), 0))


@lru_cache(maxsize=1024)
def _launch_config(num_blocks: int, num_threads: int, shared_bytes: int, stream: int) -> Handle:
    config, early = driver.CUlaunchConfig(), driver.CUlaunchAttribute()
    early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    allowed = driver.CUlaunchAttributeValue()
    allowed.programmaticStreamSerializationAllowed = 1
    early.value = allowed
    config.gridDimX, config.gridDimY, config.gridDimZ = num_blocks, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = num_threads, 1, 1
    config.sharedMemBytes, config.hStream = shared_bytes, stream
    config.attrs, config.numAttrs = [early], 1
    return config


def _argument(value: Handle | Tensor | int | None) -> tuple[Handle, int]:
    """What keeps an argument alive during a launch, and its address."""
    if value is None or isinstance(value, Tensor):
        held: Handle = ctypes.c_void_p(0 if value is None else value.data_ptr())
    elif isinstance(value, int):
        held = ctypes.c_int(value)
    else:
        return value, int(value.getPtr())
    return held, ctypes.addressof(held)


def _result(answer: tuple[Handle, ...]) -> Handle:
    """What a call of the driver or of NVRTC returns beside its status. RuntimeError: it failed."""
    status, *values = answer
    if int(status):
        raise RuntimeError(f"CUDA: {status.name}")
    return values[0] if len(values) == 1 else values
