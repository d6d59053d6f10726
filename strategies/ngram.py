"""N-gram drafting (prompt look-up): the tokens that followed the longest earlier occurrence of the current suffix."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.strategy import Drafter, EngineResources, Phase
from specbench.kernels.ngram import ngram_propose

from .auto_k import AutoK


@dataclass(frozen=True, kw_only=True)
class Ngram(AutoK):
    """k: maximum drafts per round, or `auto` by k_table, the draft_table.json of a sweep. min_n, max_n: lengths of the
    suffix looked up (vLLM's prompt_lookup_min/max)."""

    name = "ngram"
    graph = "one_and_full"
    depth_option = "k"
    most_depth = 16
    default_arm = "ngram"
    cover_options = "k=4"

    k: int = 4
    min_n: int = 2
    max_n: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.min_n <= self.max_n:
            raise ValueError(
                f"ngram: min_n={self.min_n}, max_n={self.max_n} is not allowed; allowed: 1 <= min_n <= max_n"
            )

    def make_drafter(self, resources: EngineResources) -> Drafter | None:
        return NgramDrafter(self, resources)


class NgramDrafter(Drafter):
    def __init__(self, options: Ngram, resources: EngineResources):
        self.num_drafts = options.k
        self._options = options
        self._state = resources.state

    def num_left(self, num_drafts: int) -> int:
        return self.num_drafts if num_drafts else 0

    def phases(self, batch: StepBatch) -> list[Phase]:
        return [Phase("draft_first", self._propose)]

    def _propose(self, b: StepBatch) -> None:
        if not b.num_drafts:
            self._state.drafts_SK.index_fill_(0, b.rows.slot_B, -1)
            return
        ngram_propose(b.rows.slot_B, self._state, self._options.min_n, self._options.max_n)
