"""A child's command loop: executes specbench's commands. Standard library only, since an engine's own Python runs it.

    if __name__ == "__main__":
        run(MyEngine())                      # before the engine is imported

Standard output goes to the log from the start, because engines print. End of file on standard input means that
specbench is gone: the child then ends its whole process group.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from capture import Capture, capture_of
from origin import check_findable, check_imported
from wire import Serving

if TYPE_CHECKING:
    from .wire import Command, Facts, Request, Traced

_MAX_TEXT = 500  # characters of an error
_PR_SET_PDEATHSIG = 1


class Handler(Protocol):
    """A child's engine. Errors are reported to specbench; `kind_of` classifies them."""

    def open(self, engine: Mapping[str, object]) -> Facts:
        """Starts the engine."""
        ...

    def serve(self, serving: Serving) -> Mapping[str, float]:
        """Serves all requests that become due, until `serving.is_over`; returns the engine's counters."""
        ...

    def reset(self) -> str:
        """Before a block: `off` or `emptied`, for the prefix cache."""
        ...

    def score(self, ids: list[int], num_scored: int) -> tuple[list[float], list[float]]:
        """Log-probabilities at the last `num_scored` ids, given all ids before: the id's own and the likeliest
        one's."""
        ...

    def trace(self, requests: Sequence[Request], num_rounds: int, capture: Capture) -> Traced:
        """Runs steady decode rounds of all these requests together, under a profiler. ValueError if it cannot."""
        ...

    def kind_of(self, error: BaseException) -> str | None:
        """memory, input or engine; None: determined by the error's class."""
        ...


def run(handler: Handler) -> None:
    """Executes commands until `close` or the end of the parent."""
    commands_in, output = _take_line()
    _die_with_parent()
    messages: queue.SimpleQueue[Mapping[str, object] | None] = queue.SimpleQueue()
    commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
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


def _obey(
    handler: Handler, command: Command, send: Callable[[Mapping[str, object]], None], cancelled: threading.Event
) -> None:
    do = command["do"]
    if do == "open":
        send({"opened": _opened(handler, command)})
    elif do == "serve":
        serving = Serving(command["requests"], command["max_concurrency"], send, cancelled)
        gc.disable()  # a full collection takes as long as a hundred steps; see no_gc.py
        try:
            counters = dict(handler.serve(serving))
        finally:
            gc.enable()
        serving.flush()
        send({"served": {"counters": counters}})
    elif do == "reset":
        send({"reset": {"prefix_cache": handler.reset()}})
    elif do == "score":
        log_probs, best = handler.score(command["ids"], command["num_scored"])
        send({"scored": {"log_probs": log_probs, "best_log_probs": best}})
    elif do == "trace":
        capture = capture_of(command["tool"], command["path"])
        send({"traced": handler.trace(command["requests"], command["num_rounds"], capture)})
    else:
        raise ValueError(f"do: {do!r} is not allowed; allowed: open, serve, cancel, reset, score, trace, close")


def _opened(handler: Handler, command: Command) -> dict[str, object]:
    package = command.get("package")
    if package is not None:
        check_findable(package)
    facts = handler.open(command["engine"])
    if package is not None:
        check_imported(package)
    return dict(facts)


def _take_line() -> tuple[int, int]:
    """Reserves standard input and output for messages: an engine that reads standard input gets nothing, and what it
    prints goes to standard error, the log."""
    sys.stdout.flush()
    commands_in, output = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return commands_in, output


def _die_with_parent() -> None:
    """A signal at the parent's death reaches even a child whose interpreter is blocked in a call (Linux only; other
    systems rely on end of file on standard input)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _read(commands_in: int, commands: queue.SimpleQueue[Command], cancelled: threading.Event) -> None:
    with os.fdopen(commands_in, encoding="utf-8") as file:
        for line in file:
            command: Command = json.loads(line)
            if command["do"] in ("cancel", "close"):
                cancelled.set()
            elif command["do"] == "serve":
                cancelled.clear()  # a cancel that arrived after everything had ended was meant for the previous serve
            if command["do"] != "cancel":
                commands.put(command)
            if command["do"] == "close":
                return
    _end_group()


def _end_group() -> None:
    """Ends the engine's own processes, too, if the child leads its own process group."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _write(output: int, messages: queue.SimpleQueue[Mapping[str, object] | None]) -> None:
    """Runs in a separate thread, so that writing does not delay the next step."""
    with os.fdopen(output, "w", encoding="utf-8") as file:
        while (message := messages.get()) is not None:
            try:
                file.write(json.dumps(message) + "\n")
                file.flush()
            except BrokenPipeError:
                _end_group()


def _kind(handler: Handler, error: BaseException) -> str:
    kind = handler.kind_of(error)
    if kind is not None:
        return kind
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
        return "memory"
    return "input" if isinstance(error, ValueError) else "engine"


def _line(error: BaseException) -> str:
    """The whole message as one line: if several checks report together, the first line alone says nothing."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:_MAX_TEXT]
