"""Rows of the raw tables as an engine returns them. Units and meanings: schema.py; None: the engine does not know.

Named tuples, not dataclasses: the native engine creates one per request and step in its loop, which takes half the
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MAX_DRAFTS = 1 << 16
"""Of one request in one step. Acceptance is counted per number of drafts, so a huge number would take memory."""
MAX_TOKENS = 1 << 24
"""Of one request in one step, or in one piece of its stream. Each is a sample of ITL."""


class RequestRow(NamedTuple):
    """One request that has ended."""

    request_id: int
    prompt_id: str
    num_prompt_tokens: int
    num_output_tokens: int
    finish_reason: str
    t_submit_ns: int
    t_first_ns: int
    t_last_ns: int
    error: str = ""
    t_first_device_ns: int | None = None
    t_last_device_ns: int | None = None
    output_token_ids: Sequence[int] | None = None
    output_text: str | None = None
    num_preemptions: int | None = None


class StepRow(NamedTuple):
    """One request in one step. If an engine does not report its steps, `step` counts the request's rounds, or the
    chunks that its client received."""

    step: int
    request_id: int
    kind: str  # "decode" or "mixed"
    is_prefill: bool
    t_start_ns: int | None
    t_host_ns: int | None
    t_device_ns: int | None
    batch_size: int | None
    num_rows: int | None
    num_padded_rows: int | None
    num_draft_rows: int | None
    num_proposed: int | None
    draft_depth: int | None
    num_accepted: int | None
    num_emitted: int
    truncated: bool | None
    graph: str | None
    num_syncs: int | None
    syncs: str | None


class PhaseRow(NamedTuple):
    """One occurrence of a phase."""

    step: int
    phase: str
    duration_ns: int
    instrumented: bool
    source: str


class CounterRow(NamedTuple):
    """A figure of a whole block as reported by the engine or the client: `engine.spec_decode_num_drafts`."""

    name: str
    value: float


class LogprobRow(NamedTuple):
    """Log-probabilities of one request's prompt (from its second token on) or output, from the target's own logits. The
    likeliest tokens of all positions are concatenated, the same number for each."""

    request_id: int
    part: str  # "prompt" or "output"
    token_logprobs: Sequence[float]
    top_token_ids: Sequence[int]
    top_logprobs: Sequence[float]


# For a mixture of experts: the number of experts that a layer reads in a pass of decode rounds (mean), and has in all.
EXPERTS_READ, NUM_EXPERTS = "engine.experts_per_decode_pass", "engine.num_experts"

Row = RequestRow | StepRow | PhaseRow | CounterRow | LogprobRow
