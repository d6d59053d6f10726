"""No speculation: the round with K = 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specbench.harness.engine.strategy import Drafter, EngineResources

from .options import read_options


@dataclass(frozen=True, kw_only=True, slots=True)
class NoSpecOptions:
    """No options of its own."""


class NoSpec:
    name = "no-spec"
    graph = "one"
    num_drafts = 0
    tree = None

    def __init__(self, options: Mapping[str, str]):
        self.options = read_options(NoSpecOptions, self.name, options)

    def make_drafter(self, resources: EngineResources) -> Drafter | None:
        return None
