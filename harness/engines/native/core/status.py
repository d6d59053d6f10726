"""Reading a round's outcome without making the device wait: a pinned copy and an event, read late."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor


class DeviceTimeline:
    """Maps CUDA event times onto the host's monotonic clock (ns)."""

    def __init__(self, device: torch.device):
        self._cuda = device.type == "cuda"
        if self._cuda:
            torch.cuda.synchronize(device)
            self._base_event = torch.cuda.Event(enable_timing=True)
            self._base_event.record()
            self._base_event.synchronize()
        self._base_ns = time.perf_counter_ns()

    def ns(self, event: torch.cuda.Event | None) -> int:
        """When the device reached `event`; now, if the device is the host."""
        if not self._cuda or event is None:
            return time.perf_counter_ns()
        return self._base_ns + round(self._base_event.elapsed_time(event) * 1e6)


class PendingStatus:
    """A status block on its way to the host: int32 [B, 6+Q], columns as in kernels/accept_chain.py."""

    __slots__ = ("_event", "_host_BX", "_read", "_release", "_timeline")

    def __init__(
        self,
        host_BX: Tensor,
        event: torch.cuda.Event | None,
        timeline: DeviceTimeline,
        release: Callable[[Tensor], None],
    ):
        self._host_BX = host_BX
        self._event = event
        self._timeline = timeline
        self._release = release
        self._read: tuple[list[list[int]], int] | None = None

    @property
    def is_read(self) -> bool:
        return self._read is not None

    def wait(self) -> tuple[list[list[int]], int]:
        """The rows and the device's completion time in ns. Waits only for this step's acceptance, and only once."""
        if self._read is None:
            if self._event is not None:
                self._event.synchronize()
            self._read = self._host_BX.tolist(), self._timeline.ns(self._event)
            self._release(self._host_BX)
        return self._read


class StatusReader:
    """Queues status copies; pinned buffers are reused."""

    def __init__(self, device: torch.device):
        self._cuda = device.type == "cuda"
        self._timeline = DeviceTimeline(device)
        self._spare: dict[tuple[int, ...], list[Tensor]] = {}

    def queue(self, status_BX: Tensor) -> PendingStatus:
        if not self._cuda:
            # A copy: with late reads the next round rewrites the block before it is read.
            return PendingStatus(status_BX.clone(), None, self._timeline, lambda _: None)
        spare = self._spare.setdefault(tuple(status_BX.shape), [])
        host_BX = spare.pop() if spare else torch.empty_like(status_BX, device="cpu", pin_memory=True)
        host_BX.copy_(status_BX, non_blocking=True)
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return PendingStatus(host_BX, event, self._timeline, spare.append)
