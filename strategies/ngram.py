"""N-gram drafting (prompt look-up): the tokens that followed the longest earlier occurrence of the current suffix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specbench.harness.engine.batch import StepBatch
from specbench.harness.engine.strategy import Drafter, EngineResources, Phase
from specbench.harness.models.features import Features
from specbench.kernels.ngram import ngram_propose

from .options import check_num_drafts, read_options


@dataclass(frozen=True, kw_only=True, slots=True)
class NgramOptions:
    """k: most drafts a round. min_n, max_n: lengths of the suffix looked up (vLLM's prompt_lookup_min/max)."""

    k: int = 4
    min_n: int = 2
    max_n: int = 5


class NgramDrafter:
    model = None
    features = Features.NONE
    bounded_parts: frozenset[str] = frozenset()

    def __init__(self, options: NgramOptions, resources: EngineResources):
        self.num_drafts = options.k
        self._options = options
        self._state = resources.state

    def phases(self, batch: StepBatch) -> list[Phase]:
        return [Phase("draft_first", self._propose)]

    def _propose(self, b: StepBatch) -> None:
        ngram_propose(b.rows.slot_B, self._state, self._options.min_n, self._options.max_n)


class Ngram:
    name = "ngram"
    graph = "one"
    tree = None

    def __init__(self, options: Mapping[str, str]):
        self.options = read_options(NgramOptions, self.name, options)
        check_num_drafts(self.name, self.options.k, most=16)
        if not 1 <= self.options.min_n <= self.options.max_n:
            raise ValueError(
                f"ngram: min_n={self.options.min_n}, max_n={self.options.max_n} is not allowed; 1 <= min_n <= max_n"
            )
        self.num_drafts = self.options.k

    def make_drafter(self, resources: EngineResources) -> Drafter | None:
        return NgramDrafter(self.options, resources)
