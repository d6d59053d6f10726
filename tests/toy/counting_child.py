"""A child whose model counts on: behind every token comes the next one, and at multiples of TIE the one after that is
as likely but for 5e-5. `fault`, of what it is opened with, says what an arm gets wrong. Times are its own: a step takes
STEP_NS, whatever the machine does."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "harness" / "engines" / "child"))
from obey import run  # noqa: E402
from wire import Ended, Serving, Step, StepRow  # noqa: E402

sys.path.pop(0)

VOCAB, TIE = 900, 7
STEP_NS = 10_000_000
LIKELY, TIED, UNLIKELY = -0.1, -0.10005, -9.0


class CountingChild:
    """One request a step, a token and its drafts, which are all right."""

    def open(self, engine: Mapping[str, Any]) -> Mapping[str, Any]:
        self._fault, self._drafts, self._step = engine["fault"], engine["drafts"], 0
        told = {"eager": ("none", 1), "sync": ("full", 2), "untold": (None, None)}
        self._graph, self._syncs = told.get(self._fault, ("full", 1))
        facts = {"version": "1", "graph_mode": "none", "backend": "fingers", "hardware": "cpu"}
        return {**facts, "config": {}, "notes": []}

    def serve(self, serving: Serving) -> Mapping[str, float]:
        while not serving.is_over:
            for request in serving.due():
                self._answer(serving, request)
            if not serving.in_flight:
                serving.wait()
        return {}

    def _answer(self, serving: Serving, request: Mapping[str, Any]) -> None:
        if self._fault == "fails":
            raise ValueError("no fingers left")
        ids: list[int] = []
        limit = request["max_tokens"] - (self._fault == "short")
        first_ns = now_ns = time.monotonic_ns()
        while len(ids) < limit:
            before, is_prefill = len(ids), not ids
            accepted = 0 if is_prefill else self._accepted()
            while len(ids) < min(limit, before + 1 + accepted):
                ids.append(self._next(ids[-1] if ids else request["prompt_ids"][-1], len(ids)))
            told = 0 if is_prefill or self._fault == "mute" else self._drafts
            row = StepRow(request["id"], len(ids) - before, told, accepted if told else 0, is_prefill, 1)
            started_ns, now_ns = now_ns, now_ns + STEP_NS * (6 if self._fault == "slower" else 5) // 5
            first_ns = now_ns if is_prefill else first_ns
            serving.step(Step(self._step, started_ns, now_ns, 1, [row], self._graph, 1, self._syncs))
            self._step += 1
        serving.end(Ended(request["id"], len(request["prompt_ids"]), ids, "length", first_ns, now_ns))

    def _accepted(self) -> int:
        """Drafts of this step. `position-3`: of every tenth step, the third is wrong."""
        return min(2, self._drafts) if self._fault == "position-3" and self._step % 10 == 0 else self._drafts

    def _next(self, last: int, place: int) -> int:
        takes_tied = self._fault == "near" and last % TIE == 0
        is_wrong = self._fault == "wrong" and place == 5
        return (last + 1 + (takes_tied or is_wrong)) % VOCAB

    def score(self, ids: list[int], num_scored: int) -> tuple[list[float], list[float]]:
        pairs = list(zip(ids, ids[1:], strict=False))[-num_scored:]
        if self._fault == "blind":
            return [LIKELY] * num_scored, [LIKELY] * num_scored
        if self._fault == "nan":
            return [float("nan")] * num_scored, [LIKELY] * num_scored
        own = [
            LIKELY if b == (a + 1) % VOCAB else TIED if a % TIE == 0 and b == (a + 2) % VOCAB else UNLIKELY
            for a, b in pairs
        ]
        return own, [LIKELY] * num_scored

    def reset(self) -> str:
        return "off"

    def kind_of(self, error: BaseException) -> str | None:
        return None


if __name__ == "__main__":
    run(CountingChild())
