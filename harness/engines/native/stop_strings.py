"""Stop strings of measured requests: the host checks what it has read after every step.

The engine knows only stop ids, and the host may see tokens late. Text generated after a stop string is dropped, and the
request's last time is that of the step that completed the string, whatever was launched in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specbench.harness.engines.load import cut_tokens, find_stop, num_settled
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import Request
from specbench.harness.store.rows import RequestRow

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
        self._ended_ns: dict[int, tuple[int, int]] = {}

    def add(self, request: Request) -> None:
        if self._stop:
            watch = StopWatch(self._stop, self._decode, request.sampling.min_tokens)
            self._live[request.id] = request, watch

    def look(self, engine: Engine) -> None:
        """Ends the requests whose newest tokens completed a string."""
        for number, (request, watch) in self._live.items():
            if number not in self._ended_ns and watch.is_stopped(request.output_ids):
                self._end(request, engine)

    def _end(self, request: Request, engine: Engine) -> None:
        self._ended_ns[request.id] = request.t_last_ns, request.t_last_device_ns
        if request.finish_reason is None:
            engine.abort(request.id)

    def kept(self, request: Request, row: RequestRow) -> RequestRow:
        """The row of a request that has left the engine, up to its stop string."""
        self._live.pop(request.id, None)
        ended_ns = self._ended_ns.pop(request.id, None)
        if ended_ns is None or self._decode is None:
            return row
        kept = cut_tokens(request.output_ids, self._stop, self._decode, request.sampling.min_tokens)
        return row._replace(
            output_token_ids=kept,
            num_output_tokens=len(kept),
            finish_reason="stop",
            t_last_ns=ended_ns[0],
            t_last_device_ns=ended_ns[1],
        )
