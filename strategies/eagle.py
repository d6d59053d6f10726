"""EAGLE as a chain: K drafts per round from an EAGLE-3 head; target and drafter are separate graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from specbench.harness.engines.native.core.strategy import Drafter, EngineResources

from .auto_k import AutoK
from .chain_drafter import ChainDrafter
from .unpadded_drafter import UnpaddedChainDrafter


@dataclass(frozen=True, kw_only=True)
class Eagle(AutoK):
    """k: drafts per round, or `auto` by k_table, the draft_table.json of a sweep. head: folder or hub
    name of an EAGLE checkpoint, `random` or `random-eagle1` (for forced acceptance). draft_sample_method: drafts of
    sampled requests are the likeliest token (greedy) or drawn (probabilistic)."""

    name = "eagle"
    graph = "full"
    takes_head = True
    can_unpad = True
    depth_option = "k"
    default_arm = "eagle:k=4"
    cover_options: ClassVar[str | None] = "k=4"

    k: int = 4
    head: str = ""
    draft_sample_method: str = "greedy"

    def make_drafter(self, resources: EngineResources) -> Drafter | None:
        head = resources.load_head(self.head, self.name)
        kind = UnpaddedChainDrafter if resources.drafter_rows == "unpadded" else ChainDrafter
        return kind(head, self.num_drafts, resources)
