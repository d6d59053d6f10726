"""A result as rows of the raw tables. Nothing is invented: values that a file does not contain are null."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from specbench.harness.engines.openai.acceptance import rounds_of, step_rows
from specbench.harness.engines.openai.answers import Answer, Piece
from specbench.harness.metrics.counted_acceptance import ACCEPTED, AT_POSITION, DRAFT_TOKENS, ROUNDS
from specbench.harness.store.rows import CounterRow, RequestRow, StepRow

from .result import Drafts, Request, Result

NS_PER_S = 1e9
LAID_OUT = "submit times spread over the reported duration: the file has no start times"
QUEUE_MEAN, QUEUE_P99 = "client.queue_mean_ns", "client.queue_p99_ns"


def starts_s(result: Result) -> tuple[list[float], str]:
    """When each request was submitted, relative to the first, and a note about it. Failed requests without a start time
    get that of the first."""
    served = [one for one in result.requests if one.is_served]
    if all(one.start_s is not None for one in served) and served:
        origin = min(one.start_s for one in result.requests if one.start_s is not None)
        return [(one.start_s or origin) - origin for one in result.requests], ""
    slack = [max(result.duration_s - one.e2e_s, 0.0) for one in result.requests]
    last = max(len(slack) - 1, 1)
    # In order, so that the first begins at 0 and the last one ends when the run ended.
    starts = [n / last * free for n, free in enumerate(slack)]
    if len(starts) > 1:
        starts[-1] = slack[-1]
    return starts, LAID_OUT


def request_rows(result: Result, starts: Sequence[float], prompt_ids: Sequence[str]) -> Iterator[RequestRow]:
    for n, (one, start_s, prompt_id) in enumerate(zip(result.requests, starts, prompt_ids, strict=True)):
        submit = round(start_s * NS_PER_S)
        has_output = one.num_output_tokens > 0
        yield RequestRow(
            request_id=n,
            prompt_id=prompt_id,
            num_prompt_tokens=one.num_prompt_tokens,
            num_output_tokens=one.num_output_tokens,
            finish_reason=one.finish,
            t_submit_ns=submit,
            t_first_ns=submit + round(one.ttft_s * NS_PER_S) if has_output else 0,
            t_last_ns=submit + round(one.e2e_s * NS_PER_S) if has_output else 0,
            error=one.error,
            output_text=one.text,
        )


def all_steps(result: Result, starts: Sequence[float]) -> list[StepRow]:
    """What clients received, for ITL; and the rounds, for acceptance, if the file contains those of every request."""
    rounds = [_rounds(n, one) for n, one in enumerate(result.requests)]
    known_rounds = [
        one for one, request in zip(rounds, result.requests, strict=True) if request.speculation is not None
    ]
    client_rows = (
        _client_rows(n, one, start_s) for n, (one, start_s) in enumerate(zip(result.requests, starts, strict=True))
    )
    all_known = bool(known_rounds) and None not in known_rounds
    return [*chain.from_iterable(client_rows), *chain.from_iterable(filter(None, rounds if all_known else ()))]


def counter_rows(result: Result) -> Iterator[CounterRow]:
    drafts = result.drafts or _summed(result.requests)
    if drafts is not None:
        yield CounterRow(ROUNDS, drafts.num_rounds)
        yield CounterRow(DRAFT_TOKENS, drafts.num_tokens)
        yield CounterRow(ACCEPTED, drafts.num_accepted)
        for n, rate in enumerate(drafts.by_position):
            yield CounterRow(f"{AT_POSITION}{n}", round(rate * drafts.num_rounds))
    queued = [one.queue_s * NS_PER_S for one in result.requests if one.queue_s is not None and one.is_served]
    if queued:
        yield CounterRow(QUEUE_MEAN, float(np.mean(queued)))
        yield CounterRow(QUEUE_P99, float(np.percentile(queued, 99)))


def _summed(requests: Sequence[Request]) -> Drafts | None:
    known = [one.speculation for one in requests if one.speculation is not None]
    if not known:
        return None
    return Drafts(
        num_rounds=sum(one.num_spec_steps for one in known),
        num_tokens=sum(one.num_draft_tokens for one in known),
        num_accepted=sum(one.num_accepted_draft_tokens for one in known),
    )


def _rounds(request_id: int, one: Request) -> list[StepRow] | None:
    """None if the file does not contain all rounds of the request."""
    answer = Answer(0, num_output_tokens=one.num_output_tokens, speculation=one.speculation)
    return None if rounds_of(answer) is None else step_rows(request_id, answer)


def _client_rows(request_id: int, one: Request, start_s: float) -> list[StepRow]:
    """One row per chunk. The number of tokens in a chunk is often unknown: burst ITL needs only their sum, so the last
    chunk gets the remainder. No rows if there are more chunks, or more gaps, than tokens: they are not times of tokens
    then."""
    if not one.is_served or not one.chunks or one.num_output_tokens < len(one.chunks):
        return []
    counts = [chunk.num_tokens or 1 for chunk in one.chunks]
    counts[-1] += one.num_output_tokens - sum(counts)
    if min(counts) < 1:
        return []
    times = [round((start_s + chunk.t_s) * NS_PER_S) for chunk in one.chunks]
    pieces = [Piece(t_ns, count, True) for t_ns, count in zip(times, counts, strict=True)]
    return step_rows(request_id, Answer(0, pieces=pieces, num_output_tokens=one.num_output_tokens))
