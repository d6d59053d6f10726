"""EAGLE as a chain: K drafts a round from an EAGLE-3 head; target and drafter are separate graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from specbench.harness.engine.strategy import Drafter, EngineResources, Strategy, check_num_drafts

from .chain_drafter import ChainDrafter


@dataclass(frozen=True, kw_only=True)
class Eagle(Strategy):
    """k: drafts a round. head: directory of an EAGLE-3 checkpoint, or `random` (for forced acceptance)."""

    name: ClassVar[str] = "eagle"
    graph: ClassVar[str] = "full_and_piecewise"
    takes_head: ClassVar[bool] = True
    can_unpad: ClassVar[bool] = True
    depth_option: ClassVar[str | None] = "k"
    default_arm: ClassVar[str | None] = "eagle:k=4"
    cover_options: ClassVar[str | None] = "k=4"

    k: int = 4
    head: str = ""

    def __post_init__(self) -> None:
        check_num_drafts(self.name, self.k)

    @property
    def num_drafts(self) -> int:
        return self.k

    def make_drafter(self, resources: EngineResources) -> Drafter | None:
        head = resources.load_head(self.head, self.name)
        return ChainDrafter(head, self.num_drafts, resources)
