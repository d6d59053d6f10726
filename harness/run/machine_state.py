"""What else the machine does during a measurement, as reported by Linux: load, steal time, memory stalls."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from specbench.harness.store.block_records import MachineSeen

PROC = Path("/proc")
MIN_S = 1.0
"""Below this duration, the kernel's ticks of 10 ms are too coarse for a share."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineState:
    """State at one time. load: 1-minute average. ticks, stolen_ticks: of all CPUs since boot, the latter used by other
    guests. stalled_us: time since boot in which a task waited for memory. None: not available here."""

    at_s: float
    load: float | None
    ticks: int | None
    stolen_ticks: int | None
    stalled_us: int | None


def read_state() -> MachineState:
    ticks = [int(word) for word in _match(r"^cpu +([\d ]+)", PROC / "stat").split()][:8]
    stalled = _match(r"^some .*total=(\d+)", PROC / "pressure" / "memory")
    return MachineState(
        at_s=time.monotonic(),
        load=_load(),
        ticks=sum(ticks) if ticks else None,
        stolen_ticks=ticks[7] if len(ticks) == 8 else None,
        stalled_us=int(stalled) if stalled else None,
    )


def seen_between(before: MachineState, after: MachineState, *, device: str) -> MachineSeen:
    """`device`: the measured one, cpu or cuda. The host's load is compared with its number of cores for a CPU only."""
    is_long = after.at_s - before.at_s >= MIN_S
    elapsed_us = 1e6 * (after.at_s - before.at_s)
    ticks = _difference(before.ticks, after.ticks)
    return MachineSeen(
        cores=os.cpu_count() if device == "cpu" else None,
        steal=_share(_difference(before.stolen_ticks, after.stolen_ticks), ticks) if is_long else None,
        memory_stall=_share(_difference(before.stalled_us, after.stalled_us), elapsed_us) if is_long else None,
    )


def _load() -> float | None:
    told = _match(r"^([\d.]+)", PROC / "loadavg")
    if told:
        return float(told)
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def _match(pattern: str, file: Path) -> str:
    """The first group of the matching line; empty if the file has no such line or cannot be read."""
    try:
        match = re.search(pattern, file.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:  # another system, or a kernel without pressure information
        return ""
    return match[1] if match else ""


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _share(part: int | None, whole: float | None) -> float | None:
    return None if part is None or not whole else max(0.0, part / whole)
