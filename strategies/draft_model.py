"""A small model with the target's vocabulary drafts K tokens per round (Leviathan et al. 2023, arXiv 2211.17192)."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.harness.engines.native.core.strategy import Drafter, EngineResources

from .auto_k import AutoK
from .draft_model_drafter import DraftModelDrafter


@dataclass(frozen=True, kw_only=True)
class DraftModel(AutoK):
    """k: drafts per round, or `auto` by k_table, the draft_table.json of a sweep. draft: a model's name or
    directory, self:L (the target's first L layers) or shape:NAME.
    draft_sample_method: as for eagle."""

    name = "draft-model"
    graph = "full"
    depth_option = "k"
    cover_options = "k=2,draft=self:10"

    k: int = 4
    draft: str = ""
    draft_sample_method: str = "greedy"

    def make_drafter(self, resources: EngineResources) -> Drafter | None:
        """ValueError if the draft model does not fit, and for unpadded rows: its passes have no rejected rows."""
        if resources.drafter_rows != "padded":
            raise ValueError(
                f"drafter: {resources.drafter_rows!r} is not allowed with draft-model, whose first pass has two rows a "
                "request whatever was accepted; allowed: padded"
            )
        model = resources.load_draft_model(self.draft)
        return DraftModelDrafter(model, self.num_drafts, resources)
