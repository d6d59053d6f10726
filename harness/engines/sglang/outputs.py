"""Steps from the messages of SGLang's scheduler. Standard library only, since the child imports it by path.

The scheduler sends one message for each batch that it has processed, of prompts or of a decode step (0.5.16:
SchedulerBatchResultProcessor ends each batch with one call of stream_output). With SGLANG_FORCE_STREAM_INTERVAL=1 it
contains all requests of the batch, each with its new tokens and its counters so far: verifications, and correct drafts,
before the answer is cut at its end. So a message is a step, and differences of the counters are its acceptance.
Streamed chunks are not: the client drops all but the last of those that wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from wire import Step, StepRow

if TYPE_CHECKING:
    from .answers import MetaInfo
    from .server_info import ServerInfo


class BatchOutput(Protocol):
    """A message of the scheduler: each sequence has an entry a request. Counters of speculation may be missing."""

    rids: Sequence[str]
    output_ids: Sequence[Sequence[int]]
    prompt_tokens: Sequence[int]
    cached_tokens: Sequence[int]


@dataclass
class InFlight:
    """One request. `num_verified`, `num_correct`: SGLang's counters as last reported."""

    id: int
    first_ns: int = 0
    last_ns: int = 0
    num_tokens: int = 0
    num_verified: int = 0
    num_correct: int = 0


@dataclass
class Outputs:
    """`num_draft_tokens`: rows that a request brings to verification; 1 without speculation, None where it varies.
    `depth`: levels of the tree, None for a chain. `started_ns`: when the step began, whose end comes next: the end of
    the one before, or the first submission after a pause."""

    num_draft_tokens: int | None
    depth: int | None
    in_flight: dict[str, InFlight] = field(default_factory=dict)
    num_steps: int = 0
    started_ns: int = 0

    def submitted(self, rid: str, request_id: int, now_ns: int) -> None:
        if not self.in_flight:
            self.started_ns = now_ns
        self.in_flight[rid] = InFlight(request_id)

    def step(self, message: BatchOutput, now_ns: int) -> Step | None:
        """None for a message without tokens of ours. RuntimeError where a message is not a step."""
        rows = [
            row
            for place, rid in enumerate(message.rids)
            if rid in self.in_flight and (row := self._row(message, place, self.in_flight[rid], now_ns))
        ]
        if not rows:
            return None
        step = Step(self.num_steps, self.started_ns, now_ns, len(rows), rows)
        self.num_steps, self.started_ns = self.num_steps + 1, now_ns
        return step

    def ended(self, rid: str, meta: MetaInfo) -> tuple[InFlight, str]:
        """The request, and an error if its steps do not add up to what SGLang reports at its end."""
        seen = self.in_flight.pop(rid)
        theirs = (
            meta.get("completion_tokens", seen.num_tokens),
            meta.get("spec_verify_ct", seen.num_verified),
            meta.get("spec_num_correct_drafts", seen.num_correct),
        )
        mine = (seen.num_tokens, seen.num_verified, seen.num_correct)
        if mine == theirs:
            return seen, ""
        return seen, f"its steps add up to tokens, verifications, correct drafts {mine}, SGLang reports {theirs}"

    def _row(self, message: BatchOutput, place: int, seen: InFlight, now_ns: int) -> StepRow | None:
        num_emitted = len(message.output_ids[place])
        verified = _at(message, "spec_verify_ct", place)
        correct = _at(message, "spec_num_correct_drafts", place)
        num_rounds, num_accepted = verified - seen.num_verified, correct - seen.num_correct
        if not num_emitted and not num_rounds:
            return None
        speculates = self.num_draft_tokens != 1
        is_first = not seen.num_tokens
        num_known = message.prompt_tokens[place] + seen.num_tokens
        seen.first_ns = seen.first_ns or now_ns
        seen.last_ns = now_ns
        seen.num_tokens += num_emitted
        seen.num_verified, seen.num_correct = verified, correct
        if num_rounds > 1 or (not num_rounds and num_emitted > 1):
            raise RuntimeError("SGLang sends several steps of a request in one message; it must send each by itself")
        if not num_rounds and (is_first or speculates):  # or a second prefill, after a preemption
            return StepRow(seen.id, num_emitted, 0, 0, True, num_known - message.cached_tokens[place])
        if not num_rounds:
            return StepRow(seen.id, num_emitted, 0, 0, False, 1)
        if self.num_draft_tokens is None:
            return StepRow(seen.id, num_emitted, None, None, False, num_accepted + 1)
        proposed = self.num_draft_tokens - 1
        depth = None if self.depth is None else min(self.depth, proposed)  # no path has more nodes than the tree
        return StepRow(seen.id, num_emitted, proposed, num_accepted, False, proposed + 1, depth)


def outputs_of(info: ServerInfo) -> Outputs:
    algorithm = info.get("speculative_algorithm")
    if not algorithm:
        return Outputs(num_draft_tokens=1, depth=None)
    varies = info.get("speculative_adaptive") or algorithm == "DSPARK"
    is_tree = (info.get("speculative_eagle_topk") or 1) > 1 and algorithm != "NGRAM"
    return Outputs(
        num_draft_tokens=None if varies else info["speculative_num_draft_tokens"],
        depth=info["speculative_num_steps"] if is_tree else None,
    )


def _at(message: BatchOutput, name: str, place: int) -> int:
    """A counter of a request; 0 where the message has none, as without speculation."""
    values: Sequence[int] = getattr(message, name, None) or ()
    return values[place] if place < len(values) else 0
