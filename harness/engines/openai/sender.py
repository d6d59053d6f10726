"""Sends requests to one server and reads each answer as it ends; notices when the server is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import aiohttp

from specbench.harness.engines.no_gc import no_collection

from . import stream
from .answers import Answer, read_answer
from .delay import measured_delay
from .endpoint import Endpoint, run_loop
from .stream import Exchange
from .traffic import send_all

GONE_AFTER = 3  # refused connections, one after another
Add = Callable[[int, Answer], None]
_Watch = Callable[[aiohttp.ClientSession], AbstractAsyncContextManager[list[int]]]


class ServerGone(RuntimeError):
    """The server no longer accepts connections."""


class Sender:
    """`url`: where requests are sent; `max_concurrency`: most in flight; `keeps`: whether connections are reused.
    `meet` returns when the first request may be sent."""

    def __init__(
        self, endpoint: Endpoint, url: str, max_concurrency: int, *, keeps: bool, meet: Callable[[], None] | None = None
    ):
        self._endpoint, self._url, self._max_concurrency, self._keeps = endpoint, url, max_concurrency, keeps
        self._meet = meet
        self._num_refused = 0

    def send(
        self,
        bodies: Sequence[bytes],
        arrival_s: Sequence[float],
        add: Add,
        is_over: Callable[[], bool],
        is_enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """`add` gets each answer with the number of its body. Returns once all have ended, or it `is_over`, which
        aborts them; no more are sent once there `is_enough`.

        ServerGone where it refuses connections."""
        run_loop(self._send(bodies, arrival_s, add, is_over, _unwatched, is_enough))

    def send_timed(
        self, bodies: Sequence[bytes], arrival_s: Sequence[float], add: Add, is_over: Callable[[], bool]
    ) -> list[int]:
        """Like `send`; also returns the client's own delays during it, in ns."""
        return run_loop(self._send(bodies, arrival_s, add, is_over, measured_delay))

    async def _send(
        self,
        bodies: Sequence[bytes],
        arrival_s: Sequence[float],
        add: Add,
        is_over: Callable[[], bool],
        watch: _Watch,
        is_enough: Callable[[], bool] = lambda: False,
    ) -> list[int]:
        self._num_refused = 0

        def take(index: int, exchange: Exchange) -> None:
            answer = read_answer(exchange)
            answer.error = self._endpoint.key.hidden(answer.error)
            add(index, answer)
            self._num_refused = self._num_refused + 1 if exchange.is_refused else 0
            if self._num_refused >= GONE_AFTER:
                raise ServerGone(f"the server at {self._endpoint.base_url} is gone: {exchange.fault}")

        with no_collection():
            opened = stream.open_session(self._endpoint.headers, stream.IDLE_S, keeps=self._keeps)
            async with opened as session, watch(session) as delays_ns:
                if self._meet is not None:
                    await asyncio.to_thread(self._meet)  # the loop keeps running, since its delay is being measured
                await send_all(session, self._url, bodies, arrival_s, self._max_concurrency, take, is_over, is_enough)
        return delays_ns


@asynccontextmanager
async def _unwatched(session: aiohttp.ClientSession) -> AsyncIterator[list[int]]:
    yield []
