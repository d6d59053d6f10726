"""Engine options, resolved once: nothing in them is `auto` any more."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.harness.spec.plans import PLANS, GraphPlan


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineConfig:
    """Sizes and switches of one engine. See legality.py for what may be combined."""

    max_model_len: int = 2048
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 2048  # rows of a mixed step; longer prompts are prefilled in chunks
    mixed_chunk_size: int | None = None  # prompt tokens of a step that also decodes; None: as many as fit
    page_size: int = 16
    num_pages: int | None = None  # with the dummy page; None: enough for every slot at full length
    graph: GraphPlan = PLANS["none"]
    sync: str = "single"  # reads a round: none (status_lag rounds late), single, or multi (multi_sync.py)
    status_lag: int = 0
    drafter: str = "padded"  # rows of the first drafter pass: padded to K+1 a request, or unpadded

    def __post_init__(self) -> None:
        for name, low in (("max_model_len", 2), ("max_num_seqs", 1), ("max_num_batched_tokens", 1), ("page_size", 1)):
            if getattr(self, name) < low:
                raise ValueError(f"{name}: {getattr(self, name)} is not allowed; allowed: {low} or more")
        if self.mixed_chunk_size is not None and self.mixed_chunk_size < 1:
            raise ValueError(f"mixed_chunk_size: {self.mixed_chunk_size} is not allowed; allowed: 1 or more")
        if self.num_pages is not None and self.num_pages < 2:
            raise ValueError(f"num_pages: {self.num_pages} is not allowed; allowed: 2 or more (one is the dummy page)")
        if self.status_lag < 0 or (self.sync == "none") != (self.status_lag > 0):
            raise ValueError(
                f"status_lag: {self.status_lag} does not go with sync={self.sync}; none means >= 1, single and multi 0"
            )

    @property
    def most_beside_decodes(self) -> int:
        """Prompt tokens of a step that also decodes."""
        return min(self.mixed_chunk_size or self.max_num_batched_tokens, self.max_num_batched_tokens)

    def pages_for_all(self, overhang: int) -> int:
        """Enough for all slots at full length and `overhang` more, plus the dummy page, so nothing is ever
        preempted."""
        return 1 + self.max_num_seqs * -(-(self.max_model_len + overhang) // self.page_size)
