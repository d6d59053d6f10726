"""What traces the rounds of a deployment: nothing, the capture range that nsys waits for, or the torch profiler."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from specbench.harness.engines.child.capture import Capture, NsysCapture, TorchCapture
from specbench.harness.engines.ranges import NullRanges, Ranges, TraceRanges
from specbench.harness.engines.traced import Tracer

from .ranks import rank_trace


class NoTracer(Capture):
    """The unprofiled twin."""

    sees_nodes = False

    def __init__(self) -> None:
        self.ranges: Ranges = NullRanges()

    def of_rank(self) -> Callable[[int], Tracer]:
        return _untraced


class NsysRange(NsysCapture):
    sees_nodes = True

    def __init__(self) -> None:
        self.ranges: Ranges = TraceRanges()

    def of_rank(self) -> Callable[[int], Tracer]:
        raise ValueError("tool: nsys is not allowed with several ranks, each of which traces itself; use --tool torch")


class TorchTracer(TorchCapture):
    sees_nodes = True

    def __init__(self, path: Path, device: torch.device):
        super().__init__(path, device)
        self.ranges: Ranges = TraceRanges()
        self._of_rank = partial(_torch_tracer, path, device.type)

    def of_rank(self) -> Callable[[int], Tracer]:
        return self._of_rank


def _untraced(rank: int) -> Tracer:
    return NoTracer()


def _torch_tracer(path: Path, device: str, rank: int) -> Tracer:
    return TorchTracer(rank_trace(path, rank), torch.device(device))
