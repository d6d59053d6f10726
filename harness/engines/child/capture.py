"""A profiler around some steps, and named ranges that exist only while it runs.

Imports nothing of specbench, and torch only when needed, since an engine's own Python also runs this.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Capture:
    """No profiler. `tool` and `path`: for an engine whose own profiler is started.

    `arm` is called before a batch is filled, `begin` and `end` around the steps, whose ranges are `range`. On a failure
    between `arm` and `end`, `drop` is called instead of `end`: tracing stops and nothing is kept.
    """

    tool = "none"
    path: Path | None = None

    def arm(self) -> None: ...

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def drop(self) -> None: ...

    def range(self, name: str) -> AbstractContextManager[object]:
        return nullcontext()


class NsysCapture(Capture):
    """Opens and closes the range of nsys's --capture-range=cudaProfilerApi."""

    tool = "nsys"

    def begin(self) -> None:
        import torch

        torch.cuda.synchronize()  # otherwise work in flight would be in the trace without its launch
        torch.cuda.profiler.start()

    def end(self) -> None:
        import torch

        _wait_idle()
        torch.cuda.profiler.stop()

    def drop(self) -> None:
        import torch

        torch.cuda.profiler.stop()  # does nothing if the range was never opened

    def range(self, name: str) -> AbstractContextManager[object]:
        from torch.cuda import nvtx

        return nvtx.range(name)


class TorchCapture(Capture):
    """torch.profiler over the steps, written as Chrome JSON (.json.gz: compressed)."""

    tool = "torch"

    def __init__(self, path: Path, device: torch.device):
        from torch.profiler import ProfilerActivity, profile, schedule

        self.path: Path | None = path
        self._on_gpu = device.type == "cuda"
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._on_gpu else [])]
        # Warm-up: the first collection of a process takes seconds to start, which must not be part of a round.
        self._profile = profile(activities=activities, schedule=schedule(wait=0, warmup=1, active=1, repeat=1))

    def arm(self) -> None:
        self._profile.start()

    def begin(self) -> None:
        import torch

        if self._on_gpu:
            torch.cuda.synchronize()
        self._profile.step()

    def end(self) -> None:
        try:
            if self._on_gpu:
                _wait_idle()
        finally:
            self._profile.stop()
        self._profile.export_chrome_trace(str(self.path))

    def drop(self) -> None:
        self._profile.stop()

    def range(self, name: str) -> AbstractContextManager[object]:
        from torch.profiler import record_function

        return record_function(name)


def capture_of(tool: str, path: str | None) -> Capture:
    """`tool`: nsys, torch (which writes `path`) or none."""
    if tool == "nsys":
        return NsysCapture()
    if tool == "none":
        return Capture()
    import torch

    assert path is not None
    return TorchCapture(Path(path), torch.device("cuda" if torch.cuda.is_available() else "cpu"))


def _wait_idle() -> None:
    """Waits for the GPU without a call that a trace counts as a synchronisation."""
    import torch

    event = torch.cuda.Event()
    event.record()
    while not event.query():
        time.sleep(1e-4)
