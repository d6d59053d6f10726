"""Rows of one answer, and sums over the answers of a block."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from specbench.harness.engines.load import PromptRequest
from specbench.harness.store.rows import CounterRow, RequestRow

from .answers import Answer
from .reports import Sums


def request_row(prompt: PromptRequest, answer: Answer) -> RequestRow:
    """The row of an answer; the received part of a failed answer is kept, too."""
    pieces = answer.pieces
    has_ids = answer.token_ids is not None
    return RequestRow(
        request_id=prompt.id,
        prompt_id=prompt.key,
        num_prompt_tokens=len(prompt.prompt_ids) if answer.num_prompt_tokens is None else answer.num_prompt_tokens,
        num_output_tokens=answer.num_output_tokens or 0,
        finish_reason="error" if answer.error else answer.finish_reason or "stop",
        t_submit_ns=answer.t_submit_ns,
        t_first_ns=pieces[0].t_ns if pieces else 0,
        t_last_ns=pieces[-1].t_ns if pieces else 0,
        error=answer.error,
        output_token_ids=answer.token_ids,
        output_text=None if has_ids else answer.text,
    )


@dataclass(slots=True)
class Totals:
    """Sums of what the answers say. `gaps_ns`: between the pieces of each stream."""

    gaps_ns: list[int] = field(default_factory=list)
    _sums: dict[str, float] = field(default_factory=dict)

    def add(self, answer: Answer) -> None:
        self.gaps_ns += np.diff([piece.t_ns for piece in answer.pieces]).tolist()
        if answer.num_cached_tokens is not None:
            self._count("engine.cached_prompt_tokens", answer.num_cached_tokens)
        report = answer.speculation
        if report is not None and report.sums.num_rounds != 0:
            self._count_drafts(report.sums)

    def counters(self) -> list[CounterRow]:
        return [CounterRow(name, value) for name, value in self._sums.items()]

    def _count_drafts(self, sums: Sums) -> None:
        if sums.num_rounds is not None:
            self._count("engine.answers_num_drafts", sums.num_rounds)
        self._count("engine.answers_num_draft_tokens", sums.num_drafts or 0)
        self._count("engine.answers_num_accepted_tokens", sums.num_accepted)

    def _count(self, name: str, value: float) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + value
