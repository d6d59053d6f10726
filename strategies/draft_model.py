"""A small model of the target's vocabulary drafts K tokens a round (Leviathan et al. 2023, arXiv 2211.17192)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specbench.harness.engine.strategy import Drafter, EngineResources

from .draft_model_drafter import DraftModelDrafter
from .options import check_num_drafts, read_options


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftModelOptions:
    """k: drafts a round. draft: a model's name or directory, self:L (the target's first L layers) or shape:NAME."""

    k: int = 4
    draft: str = ""


class DraftModel:
    name = "draft-model"
    graph = "full_and_piecewise"
    tree = None

    def __init__(self, options: Mapping[str, str]):
        self.options = read_options(DraftModelOptions, self.name, options)
        check_num_drafts(self.name, self.options.k)
        self.num_drafts = self.options.k

    def make_drafter(self, resources: EngineResources) -> Drafter | None:
        """ValueError if the draft model does not fit, and for unpadded rows: its passes have no rejected rows."""
        if resources.drafter_rows != "padded":
            raise ValueError(
                f"drafter: {resources.drafter_rows!r} is not allowed with draft-model, whose first pass has two rows a "
                "request whatever was accepted; allowed: padded"
            )
        model = resources.load_draft_model(self.options.draft)
        return DraftModelDrafter(model, self.num_drafts, resources)
