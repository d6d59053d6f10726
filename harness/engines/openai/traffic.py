"""Many requests at once: a closed loop, or arrivals at given times with an upper bound on what is in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

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
    is_enough: Callable[[], bool] = lambda: False,
) -> None:
    """Sends each body at its arrival or later, at most `max_concurrency` at a time, and passes finished ones to `take`.

    The next request is sent before the finished one is parsed, exchanges are parsed one at a time, and streams are
    served in between. Once there `is_enough`, no more are sent, and it ends with those in flight. Ends early, aborting
    what is in flight, once `is_over`, when `take` raises, or when cancelled; exchanges that had ended by then are
    passed to `take`.
    """
    ended: asyncio.Queue[tuple[int, Exchange] | None] = asyncio.Queue()  # None: of a sender that sends no more
    indices, num_senders = iter(range(len(bodies))), min(max_concurrency, len(bodies))
    clock = asyncio.get_running_loop().time
    start_s = clock()

    async def send() -> None:
        for index in indices:
            if (wait_s := start_s + arrival_s[index] - clock()) > 0:
                await asyncio.sleep(wait_s)
            if is_enough():
                break
            ended.put_nowait((index, await post(session, url, bodies[index])))
        ended.put_nowait(None)

    async def read() -> None:
        num_sending = num_senders
        while num_sending:
            one = await ended.get()
            if one is None:
                num_sending -= 1
                continue
            take(*one)
            await asyncio.sleep(0)

    async def watch() -> None:
        while not is_over():
            await asyncio.sleep(_LOOKS_EVERY_S)

    reading, watching = asyncio.create_task(read()), asyncio.create_task(watch())
    tasks = [reading, watching]
    try:
        for _ in range(num_senders):
            tasks.append(asyncio.create_task(send()))
            await asyncio.sleep(0)  # sending a hundred at once would delay the answers to the first
        done, _ = await asyncio.wait((reading, watching), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while not ended.empty():
            if (one := ended.get_nowait()) is not None:
                take(*one)
