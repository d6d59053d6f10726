"""EAGLE as a chain: K drafts a round from an EAGLE-3 head; target and drafter are separate graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specbench.harness.engine.strategy import Drafter, EngineResources

from .chain_drafter import ChainDrafter
from .options import check_num_drafts, read_options


@dataclass(frozen=True, kw_only=True, slots=True)
class EagleOptions:
    """k: drafts a round. head: directory of an EAGLE-3 checkpoint, or `random` (for forced acceptance)."""

    k: int = 4
    head: str = ""


class Eagle:
    name = "eagle"
    graph = "full_and_piecewise"
    tree = None

    def __init__(self, options: Mapping[str, str]):
        self.options = read_options(EagleOptions, self.name, options)
        check_num_drafts(self.name, self.options.k)
        self.num_drafts = self.options.k

    def make_drafter(self, resources: EngineResources) -> Drafter | None:
        head = resources.load_head(self.options.head, self.name)
        return ChainDrafter(head, self.num_drafts, resources)
