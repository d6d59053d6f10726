"""A server's address, its API key, and the pages that are read apart from its streams."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from specbench.workloads.guarded import parse_json

from .answers import error_text

_T = TypeVar("_T")
ASK_S = 10.0  # for one query apart from the streams
_SCORE_S = 300.0


class ApiKey:
    """A bearer token. It never appears in a text representation of this object."""

    __slots__ = ("_value",)

    def __init__(self, value: str):
        self._value = value

    @staticmethod
    def of_environment(name: str) -> ApiKey:
        return ApiKey(os.environ.get(name, "").strip())

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._value}"} if self._value else {}

    def hidden(self, text: str) -> str:
        """`text` without the key, since servers repeat a key that they refuse."""
        return text.replace(self._value, "***") if self._value else text

    def __repr__(self) -> str:
        return "ApiKey(***)" if self._value else "ApiKey()"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`base_url`: including /v1, without a trailing slash."""

    base_url: str
    key: ApiKey = field(default_factory=lambda: ApiKey(""), compare=False)

    @staticmethod
    def parse(text: str, key: ApiKey, name: str = "base_url") -> Endpoint:
        """ValueError, naming it `name`, if it is not an http address or contains a password."""
        if "@" in text or "?" in text:  # before anything that repeats the text
            raise ValueError(f"{name}: a name, password or query in it would be stored; use --api-key-env")
        try:
            url = urlsplit(text)
            is_address = url.scheme in ("http", "https") and bool((url.hostname or "").encode("idna")) and url.port != 0
        except ValueError:  # half a bracket, a port that is no port, or a name with an empty or a long part
            is_address = False
        if not is_address or url.fragment:  # what follows # is never sent, and paths are added behind it
            raise ValueError(f"{name}: {text!r} is not allowed; allowed: http://HOST:PORT/v1")
        base = text.rstrip("/")
        return Endpoint(base if url.path.strip("/") else f"{base}/v1", key)

    @property
    def root(self) -> str:
        """Root of the pages that servers have in addition to OpenAI's."""
        return self.base_url.removesuffix("/v1")

    @property
    def headers(self) -> dict[str, str]:
        return {"Content-Type": "application/json", "Accept-Encoding": "identity", **self.key.headers()}


@dataclass(frozen=True, slots=True)
class Page:
    """`status` 0: no connection; `text` says why."""

    status: int
    text: str

    @property
    def json(self) -> Mapping[str, object]:
        """Empty if there is no page or it is not a JSON object."""
        value = self._decoded()
        return value if isinstance(value, dict) else {}

    @property
    def items(self) -> Sequence[object]:
        """Empty if there is no page or it is not a JSON array."""
        value = self._decoded()
        return value if isinstance(value, list) else ()

    def _decoded(self) -> object:
        try:
            return parse_json(self.text) if self.status == 200 else None
        except ValueError:
            return None

    @property
    def said(self) -> str:
        return f"{self.status}: {error_text(self.text.encode())}" if self.status else self.text


def ask(endpoint: Endpoint, *paths: str) -> list[Page]:
    """GET of each, at the same time."""

    async def all_of_them() -> list[Page]:
        async with _session(endpoint, ASK_S) as session:
            return await asyncio.gather(
                *(_page(session.get(url), endpoint) for url in map(endpoint.root.__add__, paths))
            )

    return run_loop(all_of_them())


def send(endpoint: Endpoint, path: str, fields: Mapping[str, object] | None = None) -> Page:
    """POST, for what is not timed."""

    async def it() -> Page:
        async with _session(endpoint, _SCORE_S) as session:
            body = b"" if fields is None else msgspec.json.encode(fields)
            return await _page(session.post(endpoint.root + path, data=body), endpoint)

    return run_loop(it())


def _session(endpoint: Endpoint, seconds: float) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(headers=endpoint.headers, timeout=aiohttp.ClientTimeout(total=seconds))


async def _page(request: AbstractAsyncContextManager[aiohttp.ClientResponse], endpoint: Endpoint) -> Page:
    try:
        async with request as response:
            return Page(response.status, endpoint.key.hidden(await response.text(errors="replace")))
    except aiohttp.ClientConnectorError as error:
        return Page(0, f"no connection: {error.os_error.strerror or error.os_error}")
    except asyncio.TimeoutError:
        return Page(0, "no answer in time")
    except (aiohttp.ClientError, OSError) as error:
        return Page(0, f"no answer: {type(error).__name__}")


def run_loop(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Runs it to completion; in a thread if this one already has a loop, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
