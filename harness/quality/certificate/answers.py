"""The outputs of an arm of any engine: token ids if the engine reports them, else texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specbench.harness.engines.base import Deployment
from specbench.harness.engines.load import PromptRequest
from specbench.harness.quality.certificate.acceptance import Round, rounds_of
from specbench.harness.run.block_sink import NullSink, WatchesRequests
from specbench.harness.store.rows import RequestRow, StepRow

_UNANSWERED = ("error", "abort")


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """By request. `outputs`: None if the engine does not report token ids of every answer. `rounds`: those reported
    while answers are generated."""

    texts: Mapping[int, str | None]
    outputs: Mapping[int, tuple[int, ...]] | None
    num_tokens: int
    rounds: Mapping[int, Sequence[Round]]


class CollectedRows(NullSink):
    """Keeps the rows of requests and steps."""

    def __init__(self, progress: WatchesRequests):
        self._progress = progress
        self.requests: list[RequestRow] = []
        self.steps: list[StepRow] = []

    def request(self, row: RequestRow) -> None:
        self.requests.append(row)
        self._progress.request_done(row)

    def add_steps(self, rows: Sequence[StepRow]) -> None:
        self.steps += rows


def ask(deployment: Deployment, requests: Sequence[PromptRequest], progress: WatchesRequests) -> Answers:
    """RuntimeError if an answer is missing or ended in an error: it equals nothing."""
    rows = CollectedRows(progress)
    texts = deployment.generate(requests, rows)
    failed = [row for row in rows.requests if row.finish_reason in _UNANSWERED]
    if failed:
        reason = failed[0].error or failed[0].finish_reason
        raise RuntimeError(f"{len(failed)} of {len(requests)} requests failed: {reason}")
    if {row.request_id for row in rows.requests} != {request.id for request in requests}:
        raise RuntimeError(f"{len(rows.requests)} of {len(requests)} requests were answered")
    ids = {row.request_id: row.output_token_ids for row in sorted(rows.requests, key=lambda row: row.request_id)}
    known = {number: tuple(output) for number, output in ids.items() if output is not None}
    return Answers(
        texts={number: texts.get(number) for number in ids},
        outputs=known if len(known) == len(ids) else None,
        num_tokens=sum(row.num_output_tokens or 0 for row in rows.requests),
        rounds=rounds_of(rows.steps),
    )
