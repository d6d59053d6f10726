"""One request to a server as bytes: each piece with the time at which it could be read. Nothing is parsed here.

The client handles hundreds of streams, so it stores the raw bytes; `events.py` and `answers.py` parse them after the
request has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import aiohttp

IDLE_S = 300.0  # a stream that is silent for this long has stalled
CONNECT_S = 10.0
_KEPT_OPEN_S = 2.0  # shorter than any server's own limit, which could end a request that is just being sent


@dataclass(slots=True)
class Exchange:
    """`pieces`: (host clock ns, bytes) in order of arrival. `fault`: why it ended early, or empty. `is_refused`: the
    connection was refused."""

    t_submit_ns: int
    status: int = 0
    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    fault: str = ""
    is_refused: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)


def open_session(headers: Mapping[str, str], idle_s: float, *, keeps: bool) -> aiohttp.ClientSession:
    """For one block: as many connections as there are requests in flight, no proxy, no cookies. `keeps`: connections
    are used again; else each request has its own."""
    connector = partial(aiohttp.TCPConnector, limit=0)
    return aiohttp.ClientSession(
        headers=headers,
        connector=connector(keepalive_timeout=_KEPT_OPEN_S) if keeps else connector(force_close=True),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=idle_s),
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def post(session: aiohttp.ClientSession, url: str, body: bytes) -> Exchange:
    """Sends `body` and keeps every piece of the answer. Failures are in the result; only a cancellation is raised."""
    exchange = Exchange(time.monotonic_ns())
    keep, now = exchange.pieces.append, time.monotonic_ns
    try:
        async with session.post(url, data=body) as response:
            exchange.status = response.status
            async for piece in response.content.iter_any():
                keep((now(), piece))
    except aiohttp.ClientConnectorError as error:
        exchange.fault, exchange.is_refused = f"no connection: {error.os_error.strerror or error.os_error}", True
    except aiohttp.ConnectionTimeoutError:
        exchange.fault = f"no connection within {CONNECT_S:g} s"
    except (asyncio.TimeoutError, aiohttp.ServerTimeoutError):
        exchange.fault = f"the stream stalled: nothing for {session.timeout.sock_read:g} s"
    except (aiohttp.ClientError, OSError) as error:
        ended = f"the server ended the connection: {type(error).__name__}"
        exchange.fault = "the server cut the stream" if exchange.pieces else ended
    except Exception as error:  # a redirection to an address that cannot be encoded, for one; nobody else would see it
        exchange.fault = f"the request failed: {type(error).__name__}: {' '.join(str(error).split())}"
    return exchange
