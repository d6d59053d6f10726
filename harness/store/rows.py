"""Rows of the raw tables as an engine hands them over. Units and meanings: schema.py; None: the engine does not know.

Named tuples and no dataclasses: our own engine makes one a request and step inside its loop, and these are made in half
the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


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
    """One request in one step."""

    step: int
    request_id: int
    kind: str  # "decode" or "mixed"
    is_prefill: bool
    t_start_ns: int
    t_host_ns: int
    t_device_ns: int
    batch_size: int
    num_rows: int
    num_padded_rows: int
    num_draft_rows: int
    num_proposed: int
    draft_depth: int
    num_accepted: int
    num_emitted: int
    truncated: bool
    graph: str
    num_syncs: int
    syncs: str


class PhaseRow(NamedTuple):
    """One occurrence of a phase."""

    step: int
    phase: str
    duration_ns: int
    instrumented: bool
    source: str


Row = RequestRow | StepRow | PhaseRow
