"""What else happened on the machine while a block was measured: load, steal, memory stalls, throttling, other processes
on the GPU."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specbench.harness.run.machine_state import MachineState, read_state, seen_between
from specbench.harness.run.prepare import Served
from specbench.harness.store.block_records import BlockRecord, MachineSeen, overload

SAMPLE_INTERVAL_S = 0.5
# Reasons for lowered clocks that invalidate a block. Reaching the power limit is not one: it is a property of the GPU
# under this load, and the same for both sides.
THROTTLING = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
_POWER_CAP = 0x04


@dataclass(slots=True)
class GpuProbe:
    """One GPU, sampled through nvidia-ml-py. If the driver lacks a call, the check fails, not the measurement."""

    nvml: Any
    handle: Any

    def throttling(self) -> frozenset[str]:
        """Why its clocks are currently throttled."""
        return frozenset(name for bit, name in THROTTLING.items() if self._reasons() & bit)

    def is_power_capped(self) -> bool:
        return bool(self._reasons() & _POWER_CAP)

    def power_limit_w(self) -> float | None:
        """The currently enforced limit; None if the driver does not report it."""
        try:
            return float(self.nvml.nvmlDeviceGetEnforcedPowerLimit(self.handle)) / 1e3
        except self.nvml.NVMLError:
            return None

    def num_processes(self) -> int:
        """Number of compute processes on it, including ours."""
        return len(self.nvml.nvmlDeviceGetComputeRunningProcesses(self.handle))

    def _reasons(self) -> int:
        return int(self.nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle))


def find_probe(device: str, environ: Mapping[str, str]) -> tuple[GpuProbe | None, list[str]]:
    """The probe of the GPU that the run uses, and what cannot be checked here. `device`: cpu or cuda."""
    if device != "cuda":
        return None, ["throttling (on a CPU only load average, steal and memory stalls are checked)"]
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
        return None, [f"{unchecked} (the driver does not report it: {error})"]
    return probe, []


def _visible_gpu(nvml: Any, environ: Mapping[str, str]) -> Any:
    """The driver's handle of the first device that CUDA shows: an index or a UUID in CUDA_VISIBLE_DEVICES."""
    first = environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip() or "0"
    if first.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(first))
    return nvml.nvmlDeviceGetHandleByUUID(first)


@dataclass(frozen=True, slots=True)
class Watcher:
    """Creates the watch of each block. device: cpu or cuda; empty if measured elsewhere. most_processes: the number of
    our own compute processes on the GPU; any more are foreign. Containers hide their names, so they are counted. None:
    for engines that start processes of their own. unchecked: what cannot be observed of a GPU."""

    device: str
    probe: GpuProbe | None
    most_processes: int | None = 1
    unchecked: tuple[str, ...] = ()

    @classmethod
    def of(cls, served: Served) -> Watcher:
        """For the blocks of a run."""
        device = served.model.described.device or ""
        probe, unchecked = find_probe(device, os.environ)
        is_alone = not any(served.engine.takes_program(arm.config) for arm in served.arms)
        return cls(device, probe, 1 if is_alone else None, tuple(unchecked) if device == "cuda" else ())

    def busy_now(self) -> tuple[str, ...]:
        """An overload, as it marks a row, before anything is measured."""
        state = read_state()
        machine = seen_between(state, state, device=self.device)
        return () if state.load is None else overload(state.load, machine.cores)

    def watch(self) -> Watch:
        return Watch(self)


@dataclass(slots=True)
class Watch:
    """A context around one block, and afterwards what it observed. Without a probe, nothing is known about a GPU."""

    by: Watcher
    _before: MachineState | None = field(default=None, init=False)
    _after: MachineState | None = field(default=None, init=False)
    _power_limits_w: list[float | None] = field(default_factory=list, init=False)
    _throttling: set[str] = field(default_factory=set, init=False)
    _is_power_capped: bool = field(default=False, init=False)
    _most_processes: int = field(default=0, init=False)
    _error: str = field(default="", init=False)
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def __enter__(self) -> Watch:
        self._before = read_state()
        if self.by.probe is not None:
            self._thread = threading.Thread(target=self._sample, args=(self.by.probe,), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._after = read_state()

    def _sample(self, probe: GpuProbe) -> None:
        try:
            self._power_limits_w.append(probe.power_limit_w())
            while True:
                self._throttling |= probe.throttling()
                self._is_power_capped |= probe.is_power_capped()
                self._most_processes = max(self._most_processes, probe.num_processes())
                if self._stop.wait(SAMPLE_INTERVAL_S):
                    break
            self._power_limits_w.append(probe.power_limit_w())
        except Exception as error:  # the driver's own exceptions; recorded instead of ending the block
            self._error = f"{type(error).__name__}: {error}"

    def record(self, arm: str, block: int, position: int) -> BlockRecord:
        """The record of the block measured in this context; 1-minute load averages, before and after."""
        return BlockRecord(
            arm=arm,
            block=block,
            position=position,
            load_average=self._loads,
            machine=self._machine,
            reasons=self.reasons,
            unchecked=self.unchecked,
        )

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why to reject the block. Load counts only if there was an overload both before and after: the
        average lags by a minute, so a single high value may come from earlier work."""
        return tuple(self._reasons())

    @property
    def unchecked(self) -> tuple[str, ...]:
        """The checks that failed."""
        failed = (f"throttling and foreign GPU processes ({self._error})",) if self._error else ()
        return (*self.by.unchecked, *failed)

    @property
    def _loads(self) -> tuple[float | None, float | None]:
        assert self._before is not None and self._after is not None, "the block has not ended"
        return self._before.load, self._after.load

    @property
    def _machine(self) -> MachineSeen:
        assert self._before is not None and self._after is not None, "the block has not ended"
        seen = seen_between(self._before, self._after, device=self.by.device)
        if self.by.probe is None or self._error:
            return seen
        known = [limit for limit in self._power_limits_w if limit is not None]
        limits = (known[0], known[1]) if len(known) == 2 else None
        return replace(seen, power_limits_w=limits, is_power_capped=self._is_power_capped)

    def _reasons(self) -> Iterator[str]:
        loads, machine = self._loads, self._machine
        if None not in loads:
            yield from overload(min(load for load in loads if load is not None), machine.cores)
        yield from machine.reasons()
        if self._throttling:
            yield f"throttled: {', '.join(sorted(self._throttling))}"
        most = self.by.most_processes
        if most is not None and self._most_processes > most:
            yield f"{self._most_processes - most} foreign processes on the GPU"
