"""Ctrl-C, SIGTERM, SIGHUP: the first lets a measurement store its results, the second stops immediately, the third
kills."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_Handler = Callable[[int, FrameType | None], object] | int


class StoppedAtOnce(BaseException):
    """A second interrupt: nothing more is derived or closed. `advice`: how to resume later."""

    advice = ""


@contextmanager
def interruptible() -> Iterator[None]:
    """Within this context, a first signal raises KeyboardInterrupt, a second StoppedAtOnce. Nested uses share the
    count."""
    before = {n: handler for n, handler in _handlers().items() if handler not in (_first, _second)}
    _handle(dict.fromkeys(before, _first))
    try:
        yield
    finally:
        _handle(before)


@contextmanager
def deferred_interrupt() -> Iterator[None]:
    """A first signal is deferred until the writes in this context are done; a second one is not."""
    before = {n: handler for n, handler in _handlers().items() if callable(handler) and handler is not _second}
    pressed: list[int] = []
    is_over = False

    def later(number: int, frame: FrameType | None) -> None:
        handler = before[number]
        if is_over and callable(handler):  # a signal arrived while the handlers were being restored
            handler(number, frame)
        elif pressed:
            _second(number, frame)
        else:
            pressed.append(number)

    _handle(dict.fromkeys(before, later))
    try:
        yield
    finally:
        is_over = True
        _handle({n: handler for n, handler in before.items() if signal.getsignal(n) is later})
    if pressed:
        signal.raise_signal(pressed[0])


def _first(number: int, frame: FrameType | None) -> None:
    _handle({n: _second for n in SIGNALS if signal.getsignal(n) is _first})
    raise KeyboardInterrupt


def _second(number: int, frame: FrameType | None) -> None:
    _handle(dict.fromkeys(SIGNALS, signal.SIG_DFL))
    raise StoppedAtOnce


def _handlers() -> dict[int, _Handler]:
    """A signal that is ignored stays ignored, as in background jobs of a script."""
    found = {n: signal.getsignal(n) for n in SIGNALS}
    return {n: handler for n, handler in found.items() if handler not in (signal.SIG_IGN, None)}


def _handle(handlers: Mapping[int, _Handler]) -> None:
    """Only the main thread may handle signals, and only it is interrupted by them."""
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            signal.signal(number, handler)
