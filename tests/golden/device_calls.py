"""What the host asks of the GPU in each step, counted by torch's profiler: launches, graphs, copies, waits."""

from __future__ import annotations

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
        events = list(recorded.events() or [])
        on_host = [e for e in events if e.device_type == DeviceType.CPU]
        spans = sorted((e.time_range.start, e.time_range.end) for e in on_host if e.name == _STEP)
        assert spans, "the profiler recorded no step"
        counts = [Counter[str]() for _ in spans]
        margin_us = _APART_S * 1e6 / 2
        for event in on_host:
            kind = next((kind for kind, names in _KINDS.items() if names.match(event.name)), None)
            if kind is not None:
                at = event.time_range.start
                index = next((i for i, (t0, t1) in enumerate(spans) if t0 - margin_us <= at <= t1 + margin_us), None)
                if index is not None:
                    counts[index][kind] += 1
        self.steps = [" ".join(f"{count[kind]} {kind}" for kind in _KINDS if count[kind]) or "-" for count in counts]
        done = sum(e.device_type == DeviceType.CUDA and e.name != _STEP for e in events)
        self.device_operations = f"{done} operations"
