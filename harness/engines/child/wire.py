"""The messages between a child and specbench. Standard library only, since an engine's own Python runs it.

Messages are JSON, one per line. Commands arrive on standard input: open, serve, cancel, reset, score, trace, close.
Answers go to what was standard output when the child started.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypedDict

SETTLING = 8  # steps between the last prompt and those that are timed or traced: the first ones have cold caches
_FLUSH_ROWS = 256  # step rows per message


class Request(TypedDict):
    """One request of `serve`. `top_k` 0: all. `ignore_eos`: the answer continues to `max_tokens`. `arrival_s`: seconds
    after the start. `edits`: the active LogitEdits, as returned by `spelled`."""

    id: int
    prompt_ids: list[int]
    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    stop_token_ids: list[int]
    ignore_eos: bool
    stop: list[str]
    seed: int
    edits: Mapping[str, Any]
    arrival_s: float


class Command(TypedDict, total=False):
    """`do` is always present; `engine` with open, `requests` and `max_concurrency` with serve, `ids` and `num_scored`
    with score; with trace `requests` that do not end, `num_rounds`, and `tool` and `path` as in capture.py.

    `package`, with open: the folder that the engine must be imported from, if it is not the installed one."""

    do: str
    engine: Mapping[str, object]
    package: str
    requests: list[Request]
    max_concurrency: int
    ids: list[int]
    num_scored: int
    num_rounds: int
    tool: str
    path: str | None


class Traced(TypedDict):
    """Durations of the traced rounds and of as many before them, by the host's clock. `notes`: for the reader of the
    trace."""

    round_ns: list[int]
    unprofiled_ns: list[int]
    notes: list[str]


class Facts(TypedDict):
    """What an engine reports about itself once it is up. None: unknown. `config`: as resolved, in JSON types."""

    version: str | None
    graph_mode: str | None
    backend: str | None
    hardware: str | None
    config: Mapping[str, object]
    notes: list[str]


class StepRow(NamedTuple):
    """One request in one step. `num_rows`: of the target's forward; the other counts as in specbench's own table.
    None: unknown. `draft_depth`: of a tree; for a chain, its length."""

    request_id: int
    num_emitted: int
    num_proposed: int | None
    num_accepted: int | None
    is_prefill: bool
    num_rows: int
    draft_depth: int | None = None


class Step(NamedTuple):
    """One step of the engine. `graph`: how the target's forward ran (none, piecewise, full). `num_padded_rows`: rows of
    that forward with padding; `num_syncs`: times the host waited for the device. None: unknown."""

    number: int
    t_start_ns: int
    t_host_ns: int
    batch_size: int
    rows: list[StepRow]
    graph: str | None = None
    num_padded_rows: int | None = None
    num_syncs: int | None = None


class Ended(NamedTuple):
    """A request that has ended. `cached_tokens`: prompt tokens found in a prefix cache; None: unknown."""

    id: int
    num_prompt_tokens: int
    token_ids: list[int]
    finish_reason: str  # stop, length, abort or error
    t_first_ns: int
    t_last_ns: int
    text: str | None = None
    cached_tokens: int | None = None
    error: str = ""


class Serving:
    """Requests being served by an engine: at most `max_concurrency` at a time, none before its arrival.

    `now_ns` and `send` exist for tests.
    """

    def __init__(
        self,
        requests: Iterable[Request],
        max_concurrency: int,
        send: Callable[[Mapping[str, object]], None],
        cancelled: threading.Event,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ):
        self._pending = deque(sorted(requests, key=lambda request: request["arrival_s"]))
        self._most, self._send, self._cancelled, self._now_ns = max_concurrency, send, cancelled, now_ns
        self._started_ns = self._slot_free_ns = now_ns()
        self._keeps_time = any(request["arrival_s"] for request in self._pending)
        self._submitted_ns: dict[int, int] = {}
        self._steps: list[Step] = []
        self._num_rows = 0

    @property
    def is_cancelled(self) -> bool:
        """Whether serving was cancelled: the engine then aborts what is in flight and returns."""
        return self._cancelled.is_set()

    @property
    def is_over(self) -> bool:
        return not self._submitted_ns and (not self._pending or self.is_cancelled)

    @property
    def in_flight(self) -> list[int]:
        return list(self._submitted_ns)

    def due(self) -> list[Request]:
        """Requests to hand to the engine now. With arrival times they count as submitted when they were due or, if no
        slot was free then, when one became free: as if a client had sent them to a server while a step was running."""
        found = []
        while self._pending and len(self._submitted_ns) < self._most and not self.is_cancelled:
            arrival_ns, now_ns = self._arrival_ns(), self._now_ns()
            if arrival_ns > now_ns:
                break
            request = self._pending.popleft()
            since_ns = max(arrival_ns, self._slot_free_ns) if self._keeps_time else now_ns
            self._submitted_ns[request["id"]] = since_ns
            found.append(request)
        return found

    def wait(self) -> None:
        """With nothing in flight: waits until the next arrival or a cancel."""
        if self._pending and not self._submitted_ns:
            self._cancelled.wait(max(0.0, (self._arrival_ns() - self._now_ns()) / 1e9))

    def step(self, step: Step) -> None:
        self._steps.append(step)
        self._num_rows += len(step.rows)
        if self._num_rows >= _FLUSH_ROWS:
            self.flush()

    def end(self, ended: Ended) -> None:
        """Sends its steps first, so that a finished request is known completely, whatever happens next."""
        if len(self._submitted_ns) == self._most:
            self._slot_free_ns = self._now_ns()
        submitted_ns = self._submitted_ns.pop(ended.id)
        self.flush()
        self._send({"ended": [{**ended._asdict(), "t_submit_ns": submitted_ns}]})

    def flush(self) -> None:
        if self._steps:
            self._send({"steps": self._steps})
            self._steps, self._num_rows = [], 0

    def _arrival_ns(self) -> int:
        return self._started_ns + round(self._pending[0]["arrival_s"] * 1e9)
