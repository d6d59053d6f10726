"""Text out of an engine: prompts sent in parallel, stop strings applied by the host, outputs cut exactly.

The engine knows stop ids only, and the host may see tokens late: what was generated past a stop string is dropped, so
that the text does not depend on the strategy or on when its tokens were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from specbench.harness.engines.base import RowSink
from specbench.harness.engines.load import PromptRequest, cut_at_stop, cut_tokens, num_settled
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import Request

from .drive import clear, empty, native_request, request_row
from .stop_strings import Decode, StopWatch, cut_row, cut_steps


@torch.inference_mode()
def generate(
    engine: Engine, requests: Sequence[PromptRequest], decode: Decode | None, sink: RowSink
) -> dict[int, str | None]:
    """Sends all requests through an idle engine and waits for all. Requests with stop strings are sent in batches that
    fit the engine, because the host watches running requests. Raises the engine's ValueError for a prompt that does not
    fit; the engine is then idle again."""
    assert not engine.has_work, "the engine is still busy"
    assert decode is not None or not any(prompt.stop for prompt in requests), "stop strings need a tokenizer"
    clear(engine)
    prompts_by_id = {prompt.id: prompt for prompt in requests}
    texts: dict[int, str | None] = {}
    num_kept: dict[int, int] = {}  # of requests that a string ended
    try:
        for request in _finished(engine, requests, decode, sink):
            prompt = prompts_by_id[request.id]
            kept, least = request.output_ids, request.sampling.min_tokens
            row, text = request_row(request, prompt.key), None
            if decode:
                kept = cut_tokens(kept, prompt.stop, decode, least) if prompt.stop else kept
                whole = decode(kept)
                text = cut_at_stop(whole, prompt.stop, num_settled(kept, least, whole, decode))
                if text != whole:  # also where the engine had another reason to end with the same token
                    num_kept[request.id] = len(kept)
                    row = cut_row(row, kept, engine.log.rows)
            sink.request(row)
            texts[request.id] = text
    finally:
        sink.add_steps(cut_steps(engine.log.take(), num_kept))
    return texts


def _finished(
    engine: Engine, requests: Sequence[PromptRequest], decode: Decode | None, sink: RowSink
) -> Iterator[Request]:
    most = engine.config.max_num_seqs if any(prompt.stop for prompt in requests) else len(requests)
    live: dict[int, tuple[Request, StopWatch]] = {}
    pending = iter(requests)
    while not sink.cancelled:
        while len(live) < most and (prompt := next(pending, None)) is not None:
            request = native_request(prompt)
            try:
                engine.add(request)
            except ValueError:
                empty(engine)
                raise
            live[request.id] = request, StopWatch(prompt.stop, decode, request.sampling.min_tokens)
        if not live:
            break
        for request in engine.step():
            del live[request.id]
            yield request
        for number, (request, watch) in live.items():
            if watch.is_stopped(request.output_ids):
                engine.abort(number)
    empty(engine)
