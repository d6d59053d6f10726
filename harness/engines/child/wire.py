"""The child's side of the line to specbench: standard library only, since an engine's own Python runs it.

    if __name__ == "__main__":
        run(MyEngine())                      # before the engine is imported

Messages are JSON, one a line. Commands come in on standard input: open, serve, cancel, reset, score, close. Answers
leave on what was standard output when the child started; from then on standard output is the log, because engines
print. The end of standard input means that specbench is gone: the child ends its whole process group.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

Message = dict[str, Any]
_FLUSH_ROWS = 256  # rows of steps in one message
_MOST_TEXT = 500  # characters of an error
_PR_SET_PDEATHSIG = 1


class StepRow(NamedTuple):
    """One request in one step. `num_rows`: of the target's forward; the other counts as in specbench's own table.
    None: not known. `draft_depth`: of a tree; a chain is as deep as it is long."""

    request_id: int
    num_emitted: int
    num_proposed: int | None
    num_accepted: int | None
    is_prefill: bool
    num_rows: int
    draft_depth: int | None = None


class Step(NamedTuple):
    """One step of the engine. `graph`: how the target's forward ran (none, piecewise, full), None: not known.
    `num_padded_rows`: rows of that forward with padding, None: not known."""

    number: int
    t_start_ns: int
    t_host_ns: int
    batch_size: int
    rows: list[StepRow]
    graph: str | None = None
    num_padded_rows: int | None = None


class Ended(NamedTuple):
    """A request that has ended. `cached_tokens`: of the prompt, that a prefix cache had; None: not known."""

    id: int
    num_prompt_tokens: int
    token_ids: list[int]
    finish_reason: str  # stop, length, abort or error
    t_first_ns: int
    t_last_ns: int
    text: str | None = None
    cached_tokens: int | None = None
    error: str = ""


class Handler(Protocol):
    """What a child is: one engine. Errors are told to specbench; `kind_of` says whose fault one is."""

    def open(self, engine: Mapping[str, Any]) -> Mapping[str, Any]:
        """Starts the engine; returns version, graph_mode, backend, hardware, config, notes."""
        ...

    def serve(self, serving: Serving) -> Mapping[str, float]:
        """Serves everything that becomes due, until `serving.is_over`; returns the engine's counters of it."""
        ...

    def reset(self) -> str:
        """Before a block: `off` or `emptied`, for the prefix cache."""
        ...

    def score(self, ids: list[int], num_scored: int) -> tuple[list[float], list[float]]:
        """Log-probabilities of the last `num_scored` ids, each behind all before it: its own and the likeliest's."""
        ...

    def kind_of(self, error: BaseException) -> str | None:
        """memory, input or engine; None: as its class says."""
        ...


class Serving:
    """Requests on their way through an engine: at most `max_concurrency` at a time, none before its arrival.

    `now_ns` and `send` are there for tests.
    """

    def __init__(
        self,
        requests: Iterable[Message],
        max_concurrency: int,
        send: Callable[[Message], None],
        cancelled: threading.Event,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ):
        self._pending = deque(sorted(requests, key=lambda request: request["arrival_s"]))
        self._most, self._send, self._cancelled, self._now_ns = max_concurrency, send, cancelled, now_ns
        self._started_ns = now_ns()
        self._submitted_ns: dict[int, int] = {}
        self._steps: list[Step] = []
        self._num_rows = 0

    @property
    def is_cancelled(self) -> bool:
        """Nothing more is wanted: the engine aborts what is in flight and returns."""
        return self._cancelled.is_set()

    @property
    def is_over(self) -> bool:
        return not self._submitted_ns and (not self._pending or self.is_cancelled)

    @property
    def in_flight(self) -> list[int]:
        return list(self._submitted_ns)

    def due(self) -> list[Message]:
        """Requests to hand to the engine now. They count as submitted."""
        found = []
        while self._pending and len(self._submitted_ns) < self._most and not self.is_cancelled:
            if self._arrival_ns() > self._now_ns():
                break
            request = self._pending.popleft()
            self._submitted_ns[request["id"]] = self._now_ns()
            found.append(request)
        return found

    def wait(self) -> None:
        """With nothing in flight: until the next arrival, or until nothing more is wanted."""
        if self._pending and not self._submitted_ns:
            self._cancelled.wait(max(0.0, (self._arrival_ns() - self._now_ns()) / 1e9))

    def step(self, step: Step) -> None:
        self._steps.append(step)
        self._num_rows += len(step.rows)
        if self._num_rows >= _FLUSH_ROWS:
            self.flush()

    def end(self, ended: Ended) -> None:
        """Its steps first: what has ended is known whole, whatever happens next."""
        submitted_ns = self._submitted_ns.pop(ended.id)
        self.flush()
        self._send({"ended": [{**ended._asdict(), "t_submit_ns": submitted_ns}]})

    def flush(self) -> None:
        if self._steps:
            self._send({"steps": self._steps})
            self._steps, self._num_rows = [], 0

    def _arrival_ns(self) -> int:
        return self._started_ns + round(self._pending[0]["arrival_s"] * 1e9)


def run(handler: Handler) -> None:
    """Obeys commands until `close` or the end of the parent."""
    commands_in, output = _take_line()
    _die_with_parent()
    messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
    commands: queue.SimpleQueue[Message] = queue.SimpleQueue()
    cancelled = threading.Event()
    writer = threading.Thread(target=_write, args=(output, messages))
    writer.start()
    threading.Thread(target=_read, args=(commands_in, commands, cancelled), daemon=True).start()
    try:
        while (command := commands.get())["do"] != "close":
            try:
                _obey(handler, command, messages.put, cancelled)
            except Exception as error:
                traceback.print_exc()
                messages.put({"error": {"kind": _kind(handler, error), "text": _line(error)}})
    finally:
        messages.put(None)
        writer.join()


def _obey(handler: Handler, command: Message, send: Callable[[Message], None], cancelled: threading.Event) -> None:
    do = command["do"]
    if do == "open":
        send({"opened": dict(handler.open(command["engine"]))})
    elif do == "serve":
        serving = Serving(command["requests"], command["max_concurrency"], send, cancelled)
        counters = dict(handler.serve(serving))
        serving.flush()
        send({"served": {"counters": counters}})
    elif do == "reset":
        send({"reset": {"prefix_cache": handler.reset()}})
    elif do == "score":
        log_probs, best = handler.score(command["ids"], command["num_scored"])
        send({"scored": {"log_probs": log_probs, "best_log_probs": best}})
    else:
        raise ValueError(f"do: {do!r} is not allowed; allowed: open, serve, cancel, reset, score, close")


def _take_line() -> tuple[int, int]:
    """What was standard input and output, for messages alone: an engine that reads finds nothing, and what it prints
    goes to standard error, the log."""
    sys.stdout.flush()
    commands_in, output = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return commands_in, output


def _die_with_parent() -> None:
    """A signal at the parent's death reaches a child whose interpreter is held up in a call; other systems than Linux
    have the end of standard input only."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _read(commands_in: int, commands: queue.SimpleQueue[Message], cancelled: threading.Event) -> None:
    with os.fdopen(commands_in, encoding="utf-8") as file:
        for line in file:
            command = json.loads(line)
            if command["do"] in ("cancel", "close"):
                cancelled.set()
            elif command["do"] == "serve":
                cancelled.clear()  # a cancel that came when all had ended was for the serve before
            if command["do"] != "cancel":
                commands.put(command)
            if command["do"] == "close":
                return
    _end_group()


def _end_group() -> None:
    """The engine's own processes too, where the child leads a group of its own."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _write(output: int, messages: queue.SimpleQueue[Message | None]) -> None:
    """A thread of its own, so that nothing stands between two steps."""
    with os.fdopen(output, "w", encoding="utf-8") as file:
        while (message := messages.get()) is not None:
            try:
                file.write(json.dumps(message) + "\n")
                file.flush()
            except BrokenPipeError:
                _end_group()


def _kind(handler: Handler, error: BaseException) -> str:
    told = handler.kind_of(error)
    if told is not None:
        return told
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
        return "memory"
    return "input" if isinstance(error, ValueError) else "engine"


def _line(error: BaseException) -> str:
    """All of it as one line: where several checks report together, the first line says nothing."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:_MOST_TEXT]
