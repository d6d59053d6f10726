"""No speculation: the round with K = 0."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.harness.engines.native.core.strategy import Drafter, EngineResources, Strategy


@dataclass(frozen=True, kw_only=True)
class NoSpec(Strategy):
    """No options of its own."""

    name = "no-spec"
    graph = "one_and_full"
    is_baseline = True
    default_arm = "no-spec"
    cover_options = ""

    def make_drafter(self, resources: EngineResources) -> Drafter | None:
        return None
