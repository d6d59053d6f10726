"""EAGLE with parallel drafting (P-EAGLE; PARD, arXiv 2504.18583): one pass of the head writes all K drafts."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.harness.engines.native.core.strategy import Drafter, EngineResources

from .auto_k import AutoK
from .one_pass_drafter import OnePassDrafter


@dataclass(frozen=True, kw_only=True)
class ParallelEagle(AutoK):
    """k: drafts per round, or `auto` by k_table, as for eagle. head: folder or hub name of an EAGLE-3 head for parallel
    drafting (its config.json has ptd_token_id), or `random`. draft_sample_method: as for eagle."""

    name = "parallel-eagle"
    graph = "full"
    takes_head = True
    one_pass = True
    depth_option = "k"

    k: int = 4
    head: str = ""
    draft_sample_method: str = "greedy"

    def make_drafter(self, resources: EngineResources) -> Drafter | None:
        """ValueError for a head of another kind, and for unpadded rows."""
        if resources.drafter_rows != "padded":
            raise ValueError(
                f"drafter: {resources.drafter_rows!r} is not allowed with parallel-eagle, whose rejected rows are "
                "placeholders; allowed: padded"
            )
        return OnePassDrafter(resources.load_head(self.head, self.name), self.num_drafts, resources)
