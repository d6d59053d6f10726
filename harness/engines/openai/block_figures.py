"""Rows of one answer, and sums over the answers of a block."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from specbench.harness.engines.load import PromptRequest
from specbench.harness.store.rows import CounterRow, RequestRow

from .answers import Answer, SpecDecoding, SpecTokensDetails, Timings


def request_row(asked: PromptRequest, answer: Answer) -> RequestRow:
    """The row of an answer; the received part of a failed answer is kept, too."""
    pieces = answer.pieces
    has_ids = answer.token_ids is not None
    return RequestRow(
        request_id=asked.id,
        prompt_id=asked.key,
        num_prompt_tokens=len(asked.prompt_ids) if answer.num_prompt_tokens is None else answer.num_prompt_tokens,
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
        told = answer.speculation
        if isinstance(told, SpecDecoding) and told.num_spec_steps:
            self._count_drafts(told.num_spec_steps, told.num_draft_tokens, told.num_accepted_draft_tokens)
        elif isinstance(told, SpecTokensDetails):
            self._count_drafts(told.spec_verify_ct, told.spec_num_proposed_drafts, told.spec_num_correct_drafts)
        elif isinstance(told, Timings):
            self._count_drafts(None, told.draft_n or 0, told.draft_n_accepted or 0)

    def counters(self) -> list[CounterRow]:
        return [CounterRow(name, value) for name, value in self._sums.items()]

    def _count_drafts(self, num_rounds: int | None, num_drafts: int, num_accepted: int) -> None:
        if num_rounds is not None:
            self._count("engine.answers_num_drafts", num_rounds)
        self._count("engine.answers_num_draft_tokens", num_drafts)
        self._count("engine.answers_num_accepted_tokens", num_accepted)

    def _count(self, name: str, value: float) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + value
