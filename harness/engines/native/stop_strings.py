"""Stop strings of measured requests: the host checks what it has read after every step.

The engine knows only stop ids, and the host may see tokens late. What was generated after a stop string is dropped: the
request and the step log end with the step that completed the string, whatever was launched in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from specbench.harness.engines.load import cut_tokens, find_stop, num_settled
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import Request
from specbench.harness.store.rows import RequestRow, StepRow

Decode = Callable[[list[int]], str]


class StopWatch:
    """Searches the newest tokens of a request for stop strings, so that a stopped request leaves the engine at once."""

    def __init__(self, stop: Sequence[str], decode: Decode | None, min_tokens: int = 0):
        """Strings that end within the first `min_tokens` tokens are ignored."""
        self._stop, self._decode = [s for s in stop if s], decode
        # A byte is at most one token, so a stop string that ends in the new tokens begins within this many before.
        self._overlap = max((len(s.encode()) for s in self._stop), default=0)
        self._num_seen = self._min_tokens = min_tokens

    def is_stopped(self, output_ids: list[int]) -> bool:
        if not self._stop or self._decode is None or len(output_ids) <= self._num_seen:
            return False
        first = self._start_of_look(output_ids)
        self._num_seen = len(output_ids)
        text = self._decode(output_ids[first:])
        num_before = num_settled(output_ids[first:], self._min_tokens - first, text, self._decode)
        return any(find_stop(text, s, num_before) >= 0 for s in self._stop)

    def _start_of_look(self, output_ids: list[int]) -> int:
        """The tokens seen from here on have enough text. Special tokens have none, and may stand inside a string."""
        assert self._decode is not None
        width, seen = self._overlap, self._num_seen
        while width < seen and len(self._decode(output_ids[seen - width : seen])) < self._overlap:
            width *= 2
        return max(0, seen - width)


class StopStrings:
    """Stop strings of the requests in flight. Does nothing if there are none."""

    def __init__(self, stop: Sequence[str], decode: Decode | None):
        assert decode is not None or not stop, "stop strings need a tokenizer"
        self._stop, self._decode = stop, decode
        self._live: dict[int, tuple[Request, StopWatch]] = {}
        self._ended: set[int] = set()
        self._num_kept: dict[int, int] = {}

    def add(self, request: Request) -> None:
        if self._stop:
            watch = StopWatch(self._stop, self._decode, request.sampling.min_tokens)
            self._live[request.id] = request, watch

    def look(self, engine: Engine) -> None:
        """Ends the requests whose newest tokens completed a string."""
        for number, (request, watch) in self._live.items():
            if number not in self._ended and watch.is_stopped(request.output_ids):
                self._end(request, engine)

    def _end(self, request: Request, engine: Engine) -> None:
        self._ended.add(request.id)
        if request.finish_reason is None:
            engine.abort(request.id)

    def kept(self, request: Request, row: RequestRow, steps: Sequence[StepRow]) -> RequestRow:
        """The row of a request that has left the engine, up to its stop string. `steps`: the log so far."""
        self._live.pop(request.id, None)
        if request.id not in self._ended or self._decode is None:
            return row
        kept = cut_tokens(request.output_ids, self._stop, self._decode, request.sampling.min_tokens)
        self._num_kept[request.id] = len(kept)
        return cut_row(row, kept, steps)

    def kept_steps(self, steps: Iterable[StepRow]) -> list[StepRow]:
        """The log of the block, up to the stop strings."""
        return cut_steps(steps, self._num_kept)


def cut_row(row: RequestRow, kept: Sequence[int], steps: Sequence[StepRow]) -> RequestRow:
    """The row of a request cut to the tokens `kept`; it ends with the step that produced the last of them."""
    surplus = row.num_output_tokens - len(kept)
    for step in reversed(steps):
        if step.request_id == row.request_id:
            if surplus < step.num_emitted:
                break
            surplus -= step.num_emitted
    else:
        raise AssertionError(f"request {row.request_id}: no step brought token {len(kept)}")
    assert step.t_host_ns is not None
    return row._replace(
        output_token_ids=kept,
        num_output_tokens=len(kept),
        finish_reason="stop",
        t_last_ns=step.t_host_ns,
        t_last_device_ns=step.t_device_ns,
    )


def cut_steps(steps: Iterable[StepRow], num_kept: Mapping[int, int]) -> list[StepRow]:
    """The log without what came after the stop strings; the last step of a request counts its kept tokens only.
    `num_kept`: by request, of those that a string ended. Otherwise acceptance and tokens per forward would include
    tokens, and whole rounds, that were thrown away."""
    left, kept = dict(num_kept), []
    for step in steps:
        num_left = left.get(step.request_id)
        if num_left is not None:
            if num_left == 0:
                continue
            if num_left < step.num_emitted:
                step = step._replace(num_emitted=num_left, truncated=True)
            left[step.request_id] = num_left - step.num_emitted
        kept.append(step)
    return kept
