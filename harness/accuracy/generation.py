"""Text out of an engine: prompts sent in parallel, stop strings applied by the host, outputs cut exactly.

The engine knows stop ids only, and the host may see tokens late: what was generated past a stop string is dropped, so
that the text does not depend on the strategy or on when its tokens were read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from specbench.harness.engine.engine import Engine
from specbench.harness.engine.request import Request, SamplingParams
from specbench.harness.run.drive import request_row, settle

Decode = Callable[[list[int]], str]


@dataclass(frozen=True, kw_only=True, slots=True)
class TextRequest:
    """One prompt as token ids; `stop` are strings that end the text and do not belong to it."""

    key: str
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    stop: tuple[str, ...] = ()


@dataclass(slots=True)
class GeneratedBlock:
    """`texts` by key; `requests` and `steps` are raw rows for RunDirectory.append, outputs already cut."""

    texts: dict[str, str]
    requests: list[dict]
    steps: list[dict]


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """`text` up to the first of the stop strings, empty ones ignored."""
    ends = [end for s in stop if s and (end := text.find(s)) >= 0]
    return text[: min(ends)] if ends else text


def cut_tokens(output_ids: Sequence[int], stop: Sequence[str], decode: Decode) -> list[int]:
    """The shortest beginning of `output_ids` whose text holds a stop string; all of them where none does.

    A stop string that is once complete stays in every longer text, so the length is found by bisection.
    """

    def has_stop(count: int) -> bool:
        text = decode(list(output_ids[:count]))
        return any(s and s in text for s in stop)

    if not has_stop(len(output_ids)):
        return list(output_ids)
    low, high = 0, len(output_ids)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if has_stop(middle) else (middle, high)
    return list(output_ids[:high])


class StopWatch:
    """Looks for stop strings among the newest tokens of a request, so that a stopped one leaves the engine at once."""

    def __init__(self, stop: Sequence[str], decode: Decode):
        self._stop, self._decode = [s for s in stop if s], decode
        # A byte is at most one token, so a stop string that ends in the new tokens begins within this many before.
        self._overlap = max((len(s.encode()) for s in self._stop), default=0)
        self._num_seen = 0

    def is_stopped(self, output_ids: list[int]) -> bool:
        if not self._stop or len(output_ids) == self._num_seen:
            return False
        tail = output_ids[max(0, self._num_seen - self._overlap) :]
        self._num_seen = len(output_ids)
        text = self._decode(tail)
        return any(s in text for s in self._stop)


@torch.inference_mode()
def generate(
    engine: Engine, requests: Sequence[TextRequest], decode: Decode, on_finish: Callable[[Request], None] | None = None
) -> GeneratedBlock:
    """Sends all requests through an idle engine, as many at a time as it takes, and waits for all.

    Raises the engine's ValueError for a prompt that does not fit.
    """
    assert not engine.has_work, "the engine is still busy"
    engine.log.take()
    engine.phase_log.clear()
    live: dict[int, tuple[Request, StopWatch]] = {}
    finished: list[Request] = []
    pending = iter(enumerate(requests))
    while True:
        while len(live) < engine.config.max_num_seqs and (item := next(pending, None)) is not None:
            number, asked = item
            request = Request(number, asked.prompt_ids, asked.sampling)
            engine.add(request)
            live[number] = request, StopWatch(asked.stop, decode)
        if not live:
            break
        for request in engine.step():
            del live[request.id]
            finished.append(request)
            if on_finish:
                on_finish(request)
        for number, (request, watch) in live.items():
            if watch.is_stopped(request.output_ids):
                engine.abort(number)
    settle(engine)
    block = GeneratedBlock({}, [], engine.log.take())
    for request in sorted(finished, key=lambda r: r.id):
        _add(block, request, requests[request.id], decode)
    return block


def _add(block: GeneratedBlock, request: Request, asked: TextRequest, decode: Decode) -> None:
    kept = cut_tokens(request.output_ids, asked.stop, decode)
    row = request_row(request, asked.key)
    stopped = row["finish_reason"] == "abort" or len(kept) < len(request.output_ids)
    row |= dict(
        output_token_ids=kept, num_output_tokens=len(kept), finish_reason="stop" if stopped else row["finish_reason"]
    )
    block.requests.append(row)
    block.texts[asked.key] = cut_at_stop(decode(kept), asked.stop)
