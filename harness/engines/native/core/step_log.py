"""The engine's ground truth: one row per request and step, from which every figure is derived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from specbench.harness.store.rows import StepRow


@dataclass(slots=True)
class StepLog:
    """Rows since the last `take`; `on_step` gets (kind, device duration in ns) of each finished step."""

    rows: list[StepRow] = field(default_factory=list)
    on_step: Callable[[str, int], None] | None = None

    def take(self) -> list[StepRow]:
        rows, self.rows = self.rows, []
        return rows
