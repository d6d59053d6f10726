"""Contexts for the traced rounds: none, the capture range that nsys waits for, or the torch profiler."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from specbench.harness.engines.ranges import NullRanges, Ranges, TraceRanges


class NoTracer:
    """The unprofiled twin."""

    sees_nodes = False

    def __init__(self) -> None:
        self.ranges: Ranges = NullRanges()

    def arm(self) -> None: ...

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def drop(self) -> None: ...


class NsysRange(NoTracer):
    """Opens and closes the range of nsys's --capture-range=cudaProfilerApi."""

    sees_nodes = True

    def __init__(self) -> None:
        self.ranges: Ranges = TraceRanges()

    def begin(self) -> None:
        torch.cuda.synchronize()  # work in flight would be in the trace without its launch
        torch.cuda.profiler.start()

    def end(self) -> None:
        _wait_idle()
        torch.cuda.profiler.stop()

    def drop(self) -> None:
        torch.cuda.profiler.stop()  # of a range that was never opened it does nothing


class TorchTracer(NoTracer):
    """torch.profiler over the rounds, written as Chrome JSON (.json.gz: compressed)."""

    sees_nodes = True

    def __init__(self, path: Path, device: torch.device):
        from torch.profiler import ProfilerActivity, profile, schedule

        self.ranges: Ranges = TraceRanges()
        self._path = path
        self._on_gpu = device.type == "cuda"
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._on_gpu else [])]
        # Warm-up: the first collection of a process takes seconds to begin, which must not be in a round.
        self._profile = profile(activities=activities, schedule=schedule(wait=0, warmup=1, active=1, repeat=1))

    def arm(self) -> None:
        self._profile.start()

    def begin(self) -> None:
        if self._on_gpu:
            torch.cuda.synchronize()
        self._profile.step()

    def end(self) -> None:
        try:
            if self._on_gpu:
                _wait_idle()
        finally:
            self._profile.stop()
        self._profile.export_chrome_trace(str(self._path))

    def drop(self) -> None:
        self._profile.stop()


def _wait_idle() -> None:
    """Waits for the GPU without a call that a trace counts as a synchronisation."""
    event = torch.cuda.Event()
    event.record()
    while not event.query():
        time.sleep(1e-4)
