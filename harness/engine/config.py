"""Engine options, resolved once: nothing in them is `auto` any more."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineConfig:
    """Sizes and switches of one engine. See legality.py for what may be combined."""

    max_model_len: int = 2048
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 2048  # rows of a mixed step; longer prompts are prefilled in chunks
    page_size: int = 16
    num_pages: int | None = None  # with the dummy page; None: enough for every slot at full length
    attention: str = "torch"
    graph: str = "none"  # decode rounds: none | full | one
    sync: str = "single"  # single: every round's status is read before the next launch; none: status_lag rounds late
    status_lag: int = 0

    def __post_init__(self) -> None:
        for name, low in (("max_model_len", 2), ("max_num_seqs", 1), ("max_num_batched_tokens", 1), ("page_size", 1)):
            if getattr(self, name) < low:
                raise ValueError(f"{name}: {getattr(self, name)} is not allowed; must be >= {low}")
        if self.num_pages is not None and self.num_pages < 2:
            raise ValueError(f"num_pages: {self.num_pages} is not allowed; must be >= 2 (one is the dummy page)")
        if self.status_lag < 0 or (self.sync == "single") != (self.status_lag == 0):
            raise ValueError(
                f"status_lag: {self.status_lag} does not go with sync={self.sync}; single means 0, none means >= 1"
            )
