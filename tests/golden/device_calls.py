"""What the host asks of the GPU in each step, counted by torch's profiler: launches, graphs, copies, waits."""

from __future__ import annotations

import bisect
import contextlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

_T = TypeVar("_T")
_STEP = "golden step"
_APART_S = 0.0004  # the clocks of calls and of ranges agree to microseconds
# A wait of the profiler's own (cudaDeviceSynchronize) is not among them.
_KINDS = {
    "kernels": re.compile(r"cu(da)?Launch(Cooperative)?Kernel"),
    "graphs": re.compile(r"cu(da)?GraphLaunch"),
    "copies": re.compile(r"cu(da)?Mem(cpy|set)\w*"),
    "waits": re.compile(r"cu(da)?(Stream|Event)Synchronize"),
}


class DeviceCalls:
    """`steps`: "12 kernels 1 graphs 2 copies 1 waits" of each step; `device_operations`: what the GPU did in all."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.device_operations = ""

    def during(self, step: Callable[[], _T]) -> _T:
        time.sleep(_APART_S)
        with record_function(_STEP):
            return step()

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
            yield
            torch.cuda.synchronize()
        self._count(recorded)

    def _count(self, recorded: profile) -> None:
        # Events as they were recorded: the profiler's own list of them takes seconds to make.
        events = [
            (e.name(), e.start_ns(), e.end_ns(), e.device_type()) for e in recorded.profiler.kineto_results.events()
        ]
        on_host = [event for event in events if event[3] == DeviceType.CPU]
        spans = sorted((t0, t1) for name, t0, t1, _ in on_host if name == _STEP)
        assert spans, "the profiler recorded no step"
        starts = [t0 - _APART_S * 1e9 / 2 for t0, _ in spans]
        counts = [Counter[str]() for _ in spans]
        for name, at, _, _ in on_host:
            kind = next((kind for kind, names in _KINDS.items() if names.match(name)), None)
            index = bisect.bisect_right(starts, at) - 1
            if kind is not None and index >= 0 and at <= spans[index][1] + _APART_S * 1e9 / 2:
                counts[index][kind] += 1
        self.steps = [" ".join(f"{count[kind]} {kind}" for kind in _KINDS if count[kind]) or "-" for count in counts]
        done = sum(where == DeviceType.CUDA and name != _STEP for name, _, _, where in events)
        self.device_operations = f"{done} operations"
