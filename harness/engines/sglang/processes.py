"""Watches SGLang's processes while waiting for their work. Standard library only, since the child imports it by
path."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Awaitable
from typing import Any, TypeVar

from death import died

_WATCH_S = 0.2  # between two checks of the processes
_T = TypeVar("_T")


class Processes:
    """The processes of a running engine. `failure`: an error of ours, raised instead of the work's result."""

    def __init__(self, engine: Any):
        self._engine = engine
        self._started = multiprocessing.active_children()
        self._has_given_up = False
        self.failure: RuntimeError | None = None
        engine.tokenizer_manager.signal_handler_class = self._signals

    def until(self, work: Awaitable[_T]) -> _T:
        """The work's result. EngineDied as soon as a process is gone."""

        async def watched() -> _T:
            task = asyncio.ensure_future(work)
            while not task.done():
                await asyncio.wait([task], timeout=_WATCH_S)
                self._check_alive()
            return task.result()

        loop: asyncio.AbstractEventLoop = self._engine.loop
        return loop.run_until_complete(watched())

    def _check_alive(self) -> None:
        if self.failure is not None:
            raise self.failure
        gone = [process for process in self._started if not process.is_alive()]
        if gone:
            raise died(f"an SGLang process ended with status {gone[0].exitcode}")
        if self._has_given_up:
            raise died("an SGLang process reported a failure")

    def _signals(self, manager: object) -> Processes:
        """Replaces SGLang's class, whose handler kills this process before it can say why."""
        return self

    def running_phase_sigquit_handler(self, signum: object = None, frame: object = None) -> None:
        self._has_given_up = True

    def sigterm_handler(self, signum: object = None, frame: object = None) -> None:
        self._engine.shutdown()
        os._exit(128 + signal.SIGTERM)
