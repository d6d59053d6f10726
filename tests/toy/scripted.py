"""A drafter that follows a script: which drafts are right, wrong or missing is known beforehand.

Drafts come from a table of the target's own continuation, looked up on the device by the request's first prompt token
and its length, so the rounds can be captured like any other's.
Legend: F first tokens, L positions, K drafts, B requests, V vocabulary.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.draft_counts import FixedDrafts
from specbench.harness.engines.native.core.lookahead import Lookahead
from specbench.harness.engines.native.core.request import Request
from specbench.harness.engines.native.core.state import RoundState
from specbench.harness.engines.native.core.strategy import Drafter, EngineResources, Phase

from .prompts import VOCAB

# (request, round) -> (drafts that are right, drafts that are offered)
Pattern = Callable[[Request, int], tuple[int, int]]


def perfect(k: int) -> Pattern:
    return lambda request, index: (k, k)


def adversarial(k: int) -> Pattern:
    """Every draft is wrong."""
    return lambda request, index: (0, k)


def cycling(k: int) -> Pattern:
    """0, 1, .., K, 0, .. right drafts, each request starting at its own place."""
    return lambda request, index: ((request.id + index) % (k + 1), k)


def random_right(k: int, seed: int = 0) -> Pattern:
    return lambda request, index: (random.Random(seed * 7919 + request.id * 101 + index).randint(0, k), k)


def partly_empty(k: int) -> Pattern:
    """-1 behind 0..K drafts, the offered ones right or one short of it."""

    def pattern(request: Request, index: int) -> tuple[int, int]:
        offered = (request.id + 2 * index) % (k + 1)
        return max(offered - index % 2, 0), offered

    return pattern


PATTERNS: dict[str, Callable[[int], Pattern]] = {
    "perfect": perfect,
    "adversarial": adversarial,
    "cycling": cycling,
    "random": random_right,
    "partly-empty": partly_empty,
}


@dataclass(slots=True)
class Script:
    """int64 tables [F, L] by first prompt token and position of the pending token."""

    tokens_FL: Tensor  # the text itself
    right_FL: Tensor  # drafts that are right in the round whose pending token stands there
    offered_FL: Tensor
    rounds: dict[int, list[int]]  # request id: accepted drafts of its rounds, the limit aside

    @staticmethod
    def of(requests: Iterable[Request], oracle: dict[int, list[int]], pattern: Pattern, width: int = 1024) -> Script:
        tables = [torch.zeros(VOCAB, width, dtype=torch.int64) for _ in range(3)]
        rounds: dict[int, list[int]] = {}
        for request in requests:
            first, text = request.prompt_ids[0], [*request.prompt_ids, *oracle[request.id]]
            assert not tables[0][first].any(), f"two requests begin with token {first}"
            tables[0][first, : len(text)] = torch.tensor(text)
            at, index, rounds[request.id] = len(request.prompt_ids), 0, []
            while at < len(text):
                right, offered = pattern(request, index)
                tables[1][first, at], tables[2][first, at] = right, offered
                rounds[request.id].append(right)
                at, index = at + right + 1, index + 1
        return Script(*tables, rounds)


class Scripted:
    """The strategy; `k` drafts a round from `script`."""

    name = "scripted"
    graph = "one"
    tree = None

    def __init__(self, k: int, script: Script):
        self.num_drafts = k
        self.lookahead = Lookahead.of(k, None)
        self.script = script

    def draft_counts(self) -> FixedDrafts:
        return FixedDrafts(self.num_drafts)

    def make_drafter(self, resources: EngineResources) -> ScriptedDrafter:
        return ScriptedDrafter(self.num_drafts, self.script, resources.state)


class ScriptedDrafter(Drafter):
    def __init__(self, num_drafts: int, script: Script, state: RoundState):
        self.num_drafts = num_drafts
        self._state = state
        self._tokens_FL, self._right_FL, self._offered_FL = (
            t.to(state.device) for t in (script.tokens_FL, script.right_FL, script.offered_FL)
        )
        self._index_K = torch.arange(num_drafts, device=state.device)

    def phases(self, batch: StepBatch) -> list[Phase]:
        return [Phase("draft_first", self._propose)]

    def _propose(self, b: StepBatch) -> None:
        s = self._state
        first_B = s.tokens_SL.index_select(0, b.rows.slot_B)[:, 0]
        n_B = s.n_S.index_select(0, b.rows.slot_B).to(torch.int64)
        at_BK = (n_B[:, None] + 1 + self._index_K).clamp(max=self._tokens_FL.shape[1] - 1)
        text_BK = self._tokens_FL[first_B[:, None], at_BK]
        right_B, offered_B = self._right_FL[first_B, n_B], self._offered_FL[first_B, n_B]
        drafts_BK = torch.where(self._index_K < right_B[:, None], text_BK, (text_BK + 1) % VOCAB)
        s.drafts_SK.index_copy_(0, b.rows.slot_B, torch.where(self._index_K < offered_B[:, None], drafts_BK, -1))
