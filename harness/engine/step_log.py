"""The engine's ground truth: one row a request and step, from which every figure is derived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple


class StepRow(NamedTuple):
    """One request in one step. Times in ns of the run's monotonic clock; see measure/schema.py for the columns."""

    step: int
    request_id: int
    kind: str  # "decode" or "mixed"
    is_prefill: bool
    t_start_ns: int
    t_host_ns: int
    t_device_ns: int
    batch_size: int
    num_rows: int
    num_padded_rows: int
    num_draft_rows: int
    num_proposed: int
    draft_depth: int
    num_accepted: int
    num_emitted: int
    truncated: bool
    graph: str
    num_syncs: int
    syncs: str


@dataclass(slots=True)
class StepLog:
    """Rows since the last `take`; `on_step` is told (kind, device duration in ns) of each finished step."""

    rows: list[StepRow] = field(default_factory=list)
    on_step: Callable[[str, int], None] | None = None

    def take(self) -> list[dict]:
        rows, self.rows = self.rows, []
        return [row._asdict() for row in rows]
