"""Measures the limits of a device: how fast it reads, multiplies and attends, and what a tiny kernel costs.

Every figure is the median of repeats after a warm-up. On a GPU the work is captured in a CUDA graph and timed by CUDA
events around its replays, so launches by the host are excluded; on a CPU by the clock around the calls. Of several
ways to read memory the fastest counts: a limit belongs to the device, not to one kernel.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import psutil
import torch
import torch.nn.functional as F

from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.store.roofline_record import MEASURED, Machine

_REPEATS = 7
_READ_BYTES = {"cuda": 1 << 31, "cpu": 1 << 28}  # far beyond the last cache
_SQUARE = {"cuda": 8192, "cpu": 1024}
_PROMPT = {"cuda": 8192, "cpu": 512}  # tokens
_HEADS, _HEAD_DIM = 16, 128
_NUM_DRAWN = 1_000_003  # a prime: no two rows of a matrix are equal
_FEW, _MANY = 64, 576  # tiny kernels


@torch.inference_mode()
def measure_machine(device: torch.device | str, dtype: torch.dtype) -> Machine:
    """Measures the device, using a few seconds and a few GiB of its memory; a CPU with torch's number of threads.

    The device must be idle: other work lowers the measured limits, and the ideal then looks closer than it is.
    """
    where = torch.device(device)
    if where.type not in _READ_BYTES:
        raise ValueError(f"device: {where.type!r} is not known; allowed: {', '.join(_READ_BYTES)}")
    machine = Machine(
        device=_name(where),
        dtype=str(dtype).removeprefix("torch."),
        read_bytes_per_s=max(_reduction_bytes_per_s(where), _matvec_bytes_per_s(where, dtype)),
        matmul_flops_per_s=_matmul_flops_per_s(where, dtype),
        attention_flops_per_s=_attention_flops_per_s(where, dtype),
        kernel_launch_s=_kernel_s(where),
        how=MEASURED,
    )
    if where.type == "cuda":
        torch.cuda.empty_cache()  # later code asks how much memory is free
    return machine


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


def _read_bytes(device: torch.device) -> int:
    """Less than usual if the memory is nearly full, since a model may be loaded."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    return min(_READ_BYTES[device.type], free // 4)


def _numbers(num: int, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Normal numbers (zeros use less power, and a GPU multiplies them faster): one million, repeated, because drawing
    all of them would dominate the time."""
    some = torch.randn(min(num, _NUM_DRAWN), device=device, dtype=dtype, generator=_seeded(device))
    return some.repeat(-(-num // len(some)))[:num]


def _seeded(device: torch.device) -> torch.Generator:
    """A separate generator, so that a measurement does not advance the process's random numbers."""
    return torch.Generator(device).manual_seed(0)


def _reduction_bytes_per_s(device: torch.device) -> float:
    """The sum of a buffer as 8-byte integers: the fastest-reading sum on an H200."""
    buffer = _numbers(_read_bytes(device) // 8 * 2, device, torch.float32).view(torch.int64)
    return buffer.nbytes / _seconds(device, lambda: buffer.sum())


def _matvec_bytes_per_s(device: torch.device, dtype: torch.dtype) -> float:
    """One row times a matrix: what a decode round of one request consists of."""
    side = int((_read_bytes(device) // dtype.itemsize) ** 0.5) // 64 * 64
    linear = Linear(_numbers(side * side, device, dtype).view(side, side))
    row_1I = _numbers(side, device, dtype).view(1, side)
    return side * side * dtype.itemsize / _seconds(device, lambda: linear(row_1I))


def _matmul_flops_per_s(device: torch.device, dtype: torch.dtype) -> float:
    side = _SQUARE[device.type]
    linear = Linear(_numbers(side * side, device, dtype).view(side, side))
    x_TI = _numbers(side * side, device, dtype).view(side, side)
    return 2 * side**3 / _seconds(device, lambda: linear(x_TI))


def _attention_flops_per_s(device: torch.device, dtype: torch.dtype) -> float:
    tokens = _PROMPT[device.type]
    num = _HEADS * tokens * _HEAD_DIM
    q, k, v = (_numbers(num, device, dtype).view(1, _HEADS, tokens, _HEAD_DIM) for _ in range(3))
    flops = 4 * _HEADS * _HEAD_DIM * tokens**2
    return flops / _seconds(device, lambda: F.scaled_dot_product_attention(q, k, v))


def _kernel_s(device: torch.device) -> float:
    """The cost of one more kernel over a single number: the slope, which excludes the cost of a replay."""
    x = torch.zeros(1, device=device)
    few, many = (_seconds(device, lambda n=n: _add_ones(x, n)) for n in (_FEW, _MANY))  # type: ignore[misc]
    return max(many - few, 0.0) / (_MANY - _FEW)


def _add_ones(x: torch.Tensor, times: int) -> None:
    for _ in range(times):
        x.add_(1)


def _seconds(device: torch.device, work: Callable[[], object]) -> float:
    """Median duration of `work`."""
    timed = _replay_s(work) if device.type == "cuda" else lambda: _call_s(work)
    timed()  # warm-up
    return statistics.median(timed() for _ in range(_REPEATS))


def _call_s(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _replay_s(work: Callable[[], object]) -> Callable[[], float]:
    """Captures `work`; every call replays it once and returns how long the device took."""
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        work()  # libraries make their workspaces before a capture
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()

    def replay() -> float:
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        graph.replay()
        after.record()
        after.synchronize()
        return before.elapsed_time(after) / 1e3

    return replay
