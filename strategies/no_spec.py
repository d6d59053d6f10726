"""No speculation: the round with K = 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from specbench.harness.engine.strategy import Drafter, EngineResources, Strategy


@dataclass(frozen=True, kw_only=True)
class NoSpec(Strategy):
    """No options of its own."""

    name: ClassVar[str] = "no-spec"
    graph: ClassVar[str] = "one"
    is_baseline: ClassVar[bool] = True
    default_arm: ClassVar[str | None] = "no-spec"
    cover_options: ClassVar[str | None] = ""
    num_drafts: ClassVar[int] = 0

    def make_drafter(self, resources: EngineResources) -> Drafter | None:
        return None
