"""Converts a child's messages to rows of the raw tables. The messages: wire.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specbench.harness.engines.child import wire
from specbench.harness.store.rows import CounterRow, RequestRow, StepRow


def step_rows(steps: Sequence[Sequence[Any]]) -> Iterator[StepRow]:
    for values in steps:
        step = wire.Step(*values)
        rows = [wire.StepRow(*row) for row in step.rows]
        kind = "mixed" if any(row.is_prefill for row in rows) else "decode"
        num_rows = sum(row.num_rows for row in rows)
        for row in rows:
            yield StepRow(
                step=step.number,
                request_id=row.request_id,
                kind=kind,
                is_prefill=row.is_prefill,
                t_start_ns=step.t_start_ns,
                t_host_ns=step.t_host_ns,
                t_device_ns=None,
                batch_size=step.batch_size,
                num_rows=num_rows,
                num_padded_rows=step.num_padded_rows,
                num_draft_rows=None,
                num_proposed=row.num_proposed,
                draft_depth=row.num_proposed if row.draft_depth is None else row.draft_depth,
                num_accepted=row.num_accepted,
                num_emitted=row.num_emitted,
                truncated=_is_truncated(row),
                graph=step.graph,
                num_syncs=step.num_syncs,
                syncs=None,
            )


def _is_truncated(row: wire.StepRow) -> bool | None:
    if row.num_accepted is None:
        return None
    return row.num_emitted < row.num_accepted + 1 and not row.is_prefill


def request_row(ended: Mapping[str, Any], prompt_id: str) -> RequestRow:
    return RequestRow(
        request_id=ended["id"],
        prompt_id=prompt_id,
        num_prompt_tokens=ended["num_prompt_tokens"],
        num_output_tokens=len(ended["token_ids"]),
        finish_reason=ended["finish_reason"],
        t_submit_ns=ended["t_submit_ns"],
        t_first_ns=ended["t_first_ns"],
        t_last_ns=ended["t_last_ns"],
        error=ended["error"],
        output_token_ids=ended["token_ids"],
    )


def counter_rows(counters: Mapping[str, float]) -> list[CounterRow]:
    return [CounterRow(name, value) for name, value in counters.items()]
