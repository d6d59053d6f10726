"""The best number of drafts at each load, as measured by a sweep: `draft_table.json`, which `k=auto` reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specbench.harness.store.codec import read_document
from specbench.workloads.assets.shipped_heads import PREFIX

SCHEMA, RECORD_FILE = "specbench.draft_table/1", "draft_table.json"
MAX_DRAFTS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class CountTimes:
    """A number of drafts at one load: `round_ms` per round, `tpot_ms` per token."""

    num_drafts: int
    round_ms: float
    tpot_ms: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadTimes:
    """`best`: the number of drafts with the lowest TPOT."""

    max_concurrency: int
    best: int
    times: tuple[CountTimes, ...]

    def tpot_ms(self, num_drafts: int) -> float:
        return next(one.tpot_ms for one in self.times if one.num_drafts == num_drafts)


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftTable:
    """The table of one strategy. `options`: its own, except the number of drafts. `acceptance`: by position, the
    conditional rate: of the rounds that accept the previous draft, the share that accept this one. `loads` in rising
    order."""

    strategy: str
    options: Mapping[str, str]
    acceptance: tuple[float, ...]
    loads: tuple[LoadTimes, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Numbers of drafts measured at every load; 0: no speculation."""
        return tuple(one.num_drafts for one in self.loads[0].times)


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftTables:
    """The tables of one sweep: one for each chain that has one, and why others have none."""

    schema: str = SCHEMA
    sweep_id: str
    model: str | None
    hardware: str
    tables: tuple[DraftTable, ...]
    left_out: tuple[str, ...] = ()


def read_draft_table(file: Path, strategy: str, options: Mapping[str, str], defaults: Mapping[str, str]) -> DraftTable:
    """The strategy's table; if there are several, the one with these options. ValueError, naming the file, if none."""
    wanted = _telling(options, defaults)
    if not file.is_file():
        raise ValueError(f"k_table: {str(file)!r} does not exist; `specbench sweep` writes {RECORD_FILE}")
    found = read_document(file, DraftTables, SCHEMA)
    own = [table for table in found.tables if table.strategy == strategy]
    if len(own) > 1:
        own = [table for table in own if _telling(table.options, defaults) == wanted]
    if len(own) != 1:
        known = ", ".join(f"{t.strategy} {dict(t.options)}" if t.options else t.strategy for t in found.tables)
        raise ValueError(f"k_table: {file} has no table of {strategy} {wanted or ''}; it has {known or 'none'}")
    if fault := _fault(own[0]):
        raise ValueError(f"k_table: {file}: {strategy}: {fault}; let `specbench sweep` write it again")
    return own[0]


def _telling(options: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Without what a sweep or an arm may also leave out: defaults, and the head that ships for the model."""
    return {key: text for key, text in options.items() if text != defaults.get(key) and not text.startswith(PREFIX)}


def _fault(table: DraftTable) -> str:
    """Why the table cannot be used; empty if it can."""
    if not table.loads or not table.loads[0].times:
        return "no loads"
    counts, loads = table.counts, [load.max_concurrency for load in table.loads]
    if list(counts) != sorted(set(counts)) or not 0 <= counts[0] <= counts[-1] <= MAX_DRAFTS or not counts[-1]:
        return f"numbers of drafts {list(counts)} do not rise within 0 to {MAX_DRAFTS}"
    if any(tuple(one.num_drafts for one in load.times) != counts for load in table.loads):
        return "not every load has the same numbers of drafts"
    if loads != sorted(set(loads)):
        return f"loads {loads} do not rise"
    if not all(0 < one.tpot_ms < math.inf for load in table.loads for one in load.times):
        return "tpot_ms is not a positive number everywhere"
    if len(table.acceptance) != counts[-1] or not all(0 <= rate <= 1 for rate in table.acceptance):
        return f"acceptance does not have {counts[-1]} shares from 0 to 1"
    return ""
