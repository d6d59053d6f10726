"""What else happened on the machine while a block was measured: load, throttling, other processes on the GPU."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specbench.harness.store.ab_blocks import BlockRecord

SAMPLE_INTERVAL_S = 0.5
# Reasons for lowered clocks that spoil a block. A reached power limit is not one: it is a property of the GPU under
# this load, and the same for both sides.
THROTTLING = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


@dataclass(slots=True)
class GpuProbe:
    """One GPU, sampled through nvidia-ml-py. A driver call that it lacks fails the check, not the measurement."""

    nvml: Any
    handle: Any

    def throttling(self) -> frozenset[str]:
        """Why its clocks are held down at this moment."""
        bits = self.nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle)
        return frozenset(name for bit, name in THROTTLING.items() if bits & bit)

    def num_processes(self) -> int:
        """Processes that compute on it, ours included."""
        return len(self.nvml.nvmlDeviceGetComputeRunningProcesses(self.handle))


def find_probe(device: str, environ: Mapping[str, str]) -> tuple[GpuProbe | None, list[str]]:
    """The probe of the GPU that runs use, and what cannot be checked here. `device`: cpu or cuda."""
    if device != "cuda":
        return None, ["throttling and other processes (on a CPU only the load average is recorded)"]
    unchecked = "throttling and foreign GPU processes"
    try:
        import pynvml
    except ImportError:
        return None, [f"{unchecked} (needs nvidia-ml-py: pip install nvidia-ml-py)"]
    try:
        pynvml.nvmlInit()
        probe = GpuProbe(pynvml, _visible_gpu(pynvml, environ))
        probe.throttling(), probe.num_processes()
    except pynvml.NVMLError as error:
        return None, [f"{unchecked} (the driver does not tell: {error})"]
    return probe, []


def _visible_gpu(nvml: Any, environ: Mapping[str, str]) -> Any:
    """The driver's handle of the first device that CUDA shows: an index or a UUID in CUDA_VISIBLE_DEVICES."""
    first = environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip() or "0"
    if first.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(first))
    return nvml.nvmlDeviceGetHandleByUUID(first)


@dataclass(slots=True)
class Watch:
    """A context around one block, and what it saw afterwards. Without a probe only the load average is taken."""

    probe: GpuProbe | None
    _load_before: float | None = field(default=None, init=False)
    _load_after: float | None = field(default=None, init=False)
    _throttling: set[str] = field(default_factory=set, init=False)
    _most_processes: int = field(default=0, init=False)
    _error: str = field(default="", init=False)
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def __enter__(self) -> Watch:
        self._load_before = _load()
        if self.probe is not None:
            self._thread = threading.Thread(target=self._sample, args=(self.probe,), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._load_after = _load()

    def _sample(self, probe: GpuProbe) -> None:
        while True:
            try:
                self._throttling |= probe.throttling()
                self._most_processes = max(self._most_processes, probe.num_processes())
            except Exception as error:  # the driver's own kinds; said in the record instead of ending the block
                self._error = f"{type(error).__name__}: {error}"
                return
            if self._stop.wait(SAMPLE_INTERVAL_S):
                return

    def record(self, arm: str, block: int, position: int) -> BlockRecord:
        """Of the block that was measured within; load averages of 1 minute, before and after."""
        load_average = (self._load_before, self._load_after)
        return BlockRecord(
            arm=arm,
            block=block,
            position=position,
            load_average=load_average,
            reasons=self.reasons,
            unchecked=self.unchecked,
        )

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why to reject the block. One process on the GPU is the one that is measured; containers hide names, so they
        are counted."""
        throttled = (f"throttled: {', '.join(sorted(self._throttling))}",) if self._throttling else ()
        if self._most_processes > 1:
            return (*throttled, f"{self._most_processes - 1} foreign processes on the GPU")
        return throttled

    @property
    def unchecked(self) -> tuple[str, ...]:
        """What failed to tell."""
        return (f"throttling and foreign GPU processes ({self._error})",) if self._error else ()


def _load() -> float | None:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
