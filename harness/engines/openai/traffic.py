"""Many requests at once: a closed loop, or arrivals at given times with an upper bound on what is in flight."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence

import aiohttp

from .stream import Exchange, post

_LOOKS_EVERY_S = 0.05
Take = Callable[[int, Exchange], None]


async def send_all(
    session: aiohttp.ClientSession,
    url: str,
    bodies: Sequence[bytes],
    arrival_s: Sequence[float],
    max_concurrency: int,
    take: Take,
    is_over: Callable[[], bool],
) -> None:
    """Sends each body at its arrival or later, at most `max_concurrency` at a time, and hands what ended to `take`.

    A next request is sent before the ended one is read, one exchange is read at a time, and streams are looked at in
    between. Ends early, with what is in flight, once `is_over`, when `take` raises, and when it is cancelled; what had
    ended by then is taken.
    """
    ended: asyncio.Queue[tuple[int, Exchange]] = asyncio.Queue()
    indices = iter(range(len(bodies)))
    clock = asyncio.get_running_loop().time
    start_s = clock()

    async def send() -> None:
        for index in indices:
            if (wait_s := start_s + arrival_s[index] - clock()) > 0:
                await asyncio.sleep(wait_s)
            ended.put_nowait((index, await post(session, url, bodies[index])))

    async def read() -> None:
        for _ in bodies:
            take(*await ended.get())
            await asyncio.sleep(0)

    async def watch() -> None:
        while not is_over():
            await asyncio.sleep(_LOOKS_EVERY_S)

    reading, watching = asyncio.create_task(read()), asyncio.create_task(watch())
    tasks = [reading, watching]
    try:
        for _ in range(min(max_concurrency, len(bodies))):
            tasks.append(asyncio.create_task(send()))
            await asyncio.sleep(0)  # a hundred at once would hold up the first ones' answers
        done, _ = await asyncio.wait((reading, watching), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while not ended.empty():
            take(*ended.get_nowait())


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Without the garbage collector, which looks at every object of the process while bytes wait for their stamp."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
