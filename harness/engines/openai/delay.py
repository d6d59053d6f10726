"""The client's own delay: from the time at which bytes could be read to their time stamp.

A separate process (pacer.py) sends the time over a connection of the same session. It is stamped by the same code as
all other data, so the figure includes everything that delays the client (other streams, the machine, the language).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import numpy as np

from specbench.harness.store.rows import CounterRow

from .events import read_events
from .stream import post

_PACER = Path(__file__).with_name("pacer.py")
_BLANK_S = 0.02  # the first events wait for the connection
LIMIT_NS = 10_000_000
LIMIT_SHARE = 0.2


@asynccontextmanager
async def measured_delay(session: aiohttp.ClientSession) -> AsyncIterator[list[int]]:
    """The list is filled with delays in ns when the context ends. RuntimeError if the process does not start."""
    delays: list[int] = []
    with subprocess.Popen(
        [sys.executable, "-S", "-E", str(_PACER)],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for us; it would print a traceback
    ) as process:
        assert process.stdout is not None
        try:
            port = (await asyncio.to_thread(process.stdout.readline)).strip().decode()
            if not port:
                raise RuntimeError("the process that measures the client's own delay did not start")
            listening = asyncio.create_task(post(session, f"http://127.0.0.1:{port}/", b""))
            await asyncio.sleep(_BLANK_S)
            start_ns = time.monotonic_ns()
            yield delays
            end_ns = time.monotonic_ns()
        finally:
            process.kill()
    events = [(t_ns, int(sent)) for t_ns, sent in read_events((await listening).pieces) if sent.isdigit()]
    delays += [t_ns - sent_ns for t_ns, sent_ns in events if start_ns <= sent_ns and t_ns <= end_ns]


def delay_counters(delays_ns: Sequence[int], gaps_ns: Sequence[int]) -> list[CounterRow]:
    """`gaps_ns`: between the pieces of each stream. `client.delay_limit_ns`: what p99 of the delay may be, LIMIT_NS or
    LIMIT_SHARE of the median gap, whichever is less; a run above it is limited by its client."""
    if not delays_ns:
        return []
    p50, p99 = np.percentile(delays_ns, [50, 99])
    limit_ns = min([float(LIMIT_NS), *([LIMIT_SHARE * float(np.median(gaps_ns))] if len(gaps_ns) else [])])
    return [
        CounterRow("client.delay_p50_ns", float(p50)),
        CounterRow("client.delay_p99_ns", float(p99)),
        CounterRow("client.delay_limit_ns", limit_ns),
    ]
