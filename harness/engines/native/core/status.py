"""Reading a round's outcome without making the device wait: a pinned copy and an event, read late."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

_TRIES = 5
_LEAST_SPAN_NS = 10e9  # over which the drift is measured: both ends are known to about 10 us


class TimedEvent(Protocol):
    """What is used of torch.cuda.Event."""

    def synchronize(self) -> None: ...

    def elapsed_time(self, end_event: Any) -> float: ...


def recorded_event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


@dataclass(frozen=True, slots=True)
class _Reading:
    """Both clocks at one moment; `host_ns` is known to `uncertainty_ns`."""

    event: TimedEvent
    host_ns: int
    uncertainty_ns: int


class DeviceTimeline:
    """Maps CUDA event times onto the host's monotonic clock (ns).

    The clocks drift apart, by 15 us per second on an H100 in a virtual machine, and an elapsed time is a float32 in ms,
    which has steps of 31 us after 262 s. Therefore `align` reads both clocks anew before each warm-up and each block.
    """

    def __init__(self, record: Callable[[], TimedEvent] | None):
        """`record` records an event on the device; None if the device is the host."""
        self._record = record
        self._host_ns_per_device_ns = 1.0
        self._first = self._base = self._read_clocks() if record else None

    def align(self) -> None:
        """Reads both clocks, and their drift since the first time. Waits for the device, so never within a block."""
        if self._first is None:
            return
        self._base = base = self._read_clocks()
        elapsed_ns = self._first.event.elapsed_time(base.event) * 1e6
        if elapsed_ns >= _LEAST_SPAN_NS:
            self._host_ns_per_device_ns = (base.host_ns - self._first.host_ns) / elapsed_ns

    def ns(self, event: TimedEvent | None) -> int:
        """When the device reached `event`; now, if the device is the host."""
        if self._base is None or event is None:
            return time.perf_counter_ns()
        return self._base.host_ns + round(self._base.event.elapsed_time(event) * 1e6 * self._host_ns_per_device_ns)

    def _read_clocks(self) -> _Reading:
        return min((self._try_reading() for _ in range(_TRIES)), key=lambda reading: reading.uncertainty_ns)

    def _try_reading(self) -> _Reading:
        assert self._record is not None
        before_ns = time.perf_counter_ns()
        event = self._record()
        event.synchronize()
        after_ns = time.perf_counter_ns()
        return _Reading(event, (before_ns + after_ns) // 2, after_ns - before_ns)


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
        if self._cuda:
            torch.cuda.synchronize(device)
        self._timeline = DeviceTimeline(recorded_event if self._cuda else None)
        self._spare: dict[tuple[torch.Size, torch.dtype], list[Tensor]] = {}

    def queue(self, status_BX: Tensor) -> PendingStatus:
        if not self._cuda:
            # A copy: with late reads the next round rewrites the block before it is read.
            return PendingStatus(status_BX.clone(), None, self._timeline, lambda _: None)
        spare = self._spare.setdefault((status_BX.shape, status_BX.dtype), [])
        host_BX = spare.pop() if spare else torch.empty_like(status_BX, device="cpu", pin_memory=True)
        host_BX.copy_(status_BX, non_blocking=True)
        return PendingStatus(host_BX, recorded_event(), self._timeline, spare.append)

    def align_clocks(self) -> None:
        """See DeviceTimeline.align."""
        self._timeline.align()
