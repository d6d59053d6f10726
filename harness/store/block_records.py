"""What the machine did around each block: `blocks.jsonl`, one line per block, next to the raw tables."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specbench.harness.store.codec import from_document, to_document
from specbench.workloads.guarded import numbered_lines, parse_json

_FILE = "blocks.jsonl"
MAX_STEAL = MAX_MEMORY_STALL = 0.05
"""Share of a block's time; a block that exceeds it does not count."""
OWN_LOAD_MARGIN = 0.5
"""Above the number of cores. Our own threads took two idle cores to a load of 2.0; one busy process more makes it 3."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineSeen:
    """Observations during one block. cores: logical cores, if a CPU was measured; None for a GPU. steal: share of CPU
    time used by other guests. memory_stall: share of time in which a task waited for memory. power_limits_w: enforced,
    before and after. is_power_capped: the GPU reached its limit. None: not available, or the block was too short."""

    cores: int | None = None
    steal: float | None = None
    memory_stall: float | None = None
    power_limits_w: tuple[float, float] | None = None
    is_power_capped: bool | None = None

    def reasons(self) -> Iterator[str]:
        """Why the block does not count. Reaching the power limit is not a reason: it is a property of the GPU under
        this load."""
        if self.steal is not None and self.steal > MAX_STEAL:
            yield f"other guests used {self.steal:.0%} of the CPU time (steal)"
        if self.memory_stall is not None and self.memory_stall > MAX_MEMORY_STALL:
            yield f"waited for memory for {self.memory_stall:.0%} of the time"
        if self.power_limits_w is not None and self.power_limits_w[0] != self.power_limits_w[1]:
            yield "power limit changed from {:.0f} W to {:.0f} W".format(*self.power_limits_w)


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockRecord:
    """Observations around one block of one arm (a side, in an A/B): load average (1 minute) before and after, `reasons`
    to reject it, what could not be checked; for a block in its own process its exit code, duration, and the code that
    it ran; `run_id`: of the run that it comes from, if not this one."""

    arm: str
    block: int
    position: int
    load_average: tuple[float | None, ...] | None = None
    machine: MachineSeen = MachineSeen()
    reasons: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    exit_code: int | None = None
    wall_s: float | None = None
    code_state: str | None = None
    run_id: str | None = None

    @property
    def disturbances(self) -> tuple[str, ...]:
        """The reasons, and an overload at one end of the block. That alone does not reject a block, because the average
        lags by a minute."""
        if any(reason.startswith("load ") for reason in self.reasons) or self.load is None:
            return self.reasons
        return (*overload(self.load, self.machine.cores), *self.reasons)

    @property
    def load(self) -> float | None:
        """The higher load average of the two."""
        return max((load for load in self.load_average or () if load is not None), default=None)


def overload(load: float, cores: int | None) -> tuple[str, ...]:
    """A load average that others must have caused: a measured engine with a thread on each core keeps it there."""
    return (f"load {load:.1f} on {cores} cores",) if cores is not None and load > cores + OWN_LOAD_MARGIN else ()


def add_record(directory: Path, record: BlockRecord) -> None:
    """Appends the record of a block; a later line for the same block replaces it."""
    path, line = directory / _FILE, json.dumps(to_document(record), allow_nan=False)
    content = path.read_bytes() if path.exists() else b""
    last = content.rpartition(b"\n")[2]
    with path.open("ab") as stream:
        if last and _is_torn(last.decode(errors="replace")):
            stream.truncate(len(content) - len(last))
        elif last:
            stream.write(b"\n")
        stream.write(line.encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def read_records(directory: Path) -> dict[tuple[str, int], BlockRecord]:
    """The last record of each block. The beginning of a last line, which a kill leaves, is skipped: its block is
    measured again. ValueError naming any other line that cannot be read."""
    path = directory / _FILE
    records: dict[tuple[str, int], BlockRecord] = {}
    lines = list(numbered_lines(path)) if path.exists() else []
    if lines and not _ends_whole(path) and _is_torn(lines[-1][1]):
        lines.pop()
    for number, line in lines:
        where = f"{path}:{number}"
        try:
            record = from_document(BlockRecord, parse_json(line), where)
        except ValueError as error:
            reason = str(error).removeprefix(f"{where}: ")
            raise ValueError(f"{where}: {reason}; restore it, or remove this line") from error
        records[record.arm, record.block] = record
    return records


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read() == b"\n"


def _is_torn(line: str) -> bool:
    try:
        parse_json(line)
    except ValueError:
        return True
    return False
