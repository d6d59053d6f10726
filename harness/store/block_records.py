"""What the machine did around each block: `blocks.jsonl`, one line per block, next to the raw tables."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specbench.harness.store.codec import from_document, to_document
from specbench.workloads.guarded import parse_json, read_bytes

_FILE = "blocks.jsonl"
_MEND = "restore it from a copy, or remove it and measure its block again"
_NAMED = re.compile(rb'\{"arm": "(?:[^"\\]|\\.)*", "block": \d+, ')  # how a line begins: by naming its block
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
    """Appends the record of a block; a later line for the same block replaces it. A torn last line, which has no end
    because the program was killed while it wrote, is removed first."""
    path, line = directory / _FILE, json.dumps(to_document(record), allow_nan=False)
    content = path.read_bytes() if path.exists() else b""
    last = content.rpartition(b"\n")[2]
    with path.open("ab") as stream:
        if last and _is_torn(last):
            stream.truncate(len(content) - len(last))
        elif last:
            stream.write(b"\n")
        stream.write(line.encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def read_records(directory: Path) -> dict[tuple[str, int], BlockRecord]:
    """The last record of each block. Left out are a torn last line, and a torn line whose block has a later record:
    earlier versions ended a torn line and measured its block again. ValueError naming any other line that cannot be
    read."""
    path = directory / _FILE
    records: dict[tuple[str, int], BlockRecord] = {}
    *lines, last = read_bytes(path).split(b"\n") if path.exists() else [b""]
    lines += [] if _is_torn(last) else [last]
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            raw = parse_json(line.decode())
        except ValueError as error:
            if _is_replaced(line, lines[number:]):
                continue
            raise ValueError(f"{where}: {error}; {_MEND}") from error
        record = from_document(BlockRecord, raw, where, _MEND)
        records[record.arm, record.block] = record
    return records


def unrecorded(
    blocks: Collection[tuple[str, int]], records: Mapping[tuple[str, int], BlockRecord]
) -> set[tuple[str, int]]:
    """Blocks that lost their record, so that nobody knows what disturbed them; none of a run without any record, as of
    other tools."""
    return set(blocks) - records.keys() if records else set()


def _is_torn(line: bytes) -> bool:
    try:
        parse_json(line.decode())
    except ValueError:
        return True
    return False


def _is_replaced(torn: bytes, later: Sequence[bytes]) -> bool:
    """Whether a torn line still names its block, and a later line is a whole one of the same block."""
    named = _NAMED.match(torn)
    return named is not None and any(line.startswith(named[0]) and not _is_torn(line) for line in later)
