"""A server of OpenAI's protocol on this machine: it answers as vLLM, SGLang, llama.cpp or nobody in particular, and
with faults at will.

Run as a program it serves alone in its process: `python openai_server.py KIND DELAY_S`, and prints its address.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

OWNERS = {"vllm": "vllm", "sglang": "sglang", "llama.cpp": "llamacpp", "plain": "somebody"}
EXTRAS = ("top_k", "min_p", "repetition_penalty", "stop_token_ids", "ignore_eos", "return_token_ids", "cache_salt")


@dataclass
class OpenAIServer:
    """`sizes`: tokens of each round behind the first token, over and over. `delay_s`: before each piece. `fault`: of a
    request's number and fields, one of 500, 429, 401, cut, stall, malformed, error, no-usage, the empty string, or a
    field of the last chunk with another value: `completion_tokens=-4`.
    `accepted`: what vLLM says of its rounds in place of `sizes` - 1, which may go past the end."""

    kind: str = "vllm"
    version: str = "0.32.0"  # of vLLM
    sizes: Sequence[int] = (1,)
    delay_s: float = 0.0
    speculates: bool = False
    details: str = ""  # of vLLM's --per-request-spec-decode-metrics
    overshoot: int = 0  # accepted in the last round and not emitted
    key: str = ""
    cached: int = 0
    line: bytes = b"\n"
    split: Callable[[bytes], list[bytes]] = lambda data: [data]
    fault: Callable[[int, dict], str] = lambda number, asked: ""
    models: Sequence[str] = ("served",)
    page: str = ""  # of counters, in place of its own
    asked: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    deals_to: Sequence[OpenAIServer] = ()  # to which it sends all requests on, in turn
    num_in_flight: int = 0
    most_in_flight: int = 0
    num_ended: int = 0
    num_rounds: int = 0
    num_drafts: int = 0
    num_accepted: int = 0
    url: str = ""
    port: int = 0

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._answer)
        app.router.add_post("/v1/chat/completions", self._answer)
        app.router.add_post("/{name:reset_prefix_cache|flush_cache}", self._emptied)
        if self.kind != "plain":
            app.router.add_get("/metrics", self._metrics)
        for path, value in self._pages().items():
            app.router.add_get(path, self._page(value))
        return app

    def _pages(self) -> dict[str, Any]:
        algorithm = {"speculative_algorithm": "EAGLE3" if self.speculates else None}
        return {
            "vllm": {"/version": {"version": self.version}},
            "sglang": {"/server_info": {"version": "0.5.23", "attention_backend": "fa3", **algorithm}},
            "llama.cpp": {
                "/props": {
                    "build_info": "b7000",
                    "default_generation_settings": {"params": {"speculative.types": "none"}},
                },
                "/slots": [{"id": 0, "speculative": self.speculates}],
            },
        }.get(self.kind, {})

    @property
    def is_measured(self) -> bool:
        """Its counters were read when it was found, and again before a block."""
        return self.paths.count("/metrics") > 1

    @staticmethod
    def _page(value: Any) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def told(request: web.Request) -> web.Response:
            return web.json_response(value)

        return told

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.paths.append(request.path)
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            said = request.headers.get("Authorization", "no key")
            return web.json_response({"error": {"message": f"wrong key: {said}"}}, status=401)
        return await handler(request)

    async def _models(self, request: web.Request) -> web.Response:
        listed = [{"id": name, "object": "model", "owned_by": OWNERS[self.kind]} for name in self.models]
        return web.json_response({"object": "list", "data": listed})

    async def _emptied(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _metrics(self, request: web.Request) -> web.Response:
        if self.page:
            return web.Response(text=self.page)
        prefix = {"vllm": "vllm", "llama.cpp": "llamacpp", "sglang": "sglang"}[self.kind]
        lines = [f'{prefix}:num_requests_running{{engine="0"}} 0']
        if self.speculates:
            told = {"num_drafts": self.num_rounds, "num_draft_tokens": self.num_drafts}
            for name, value in {**told, "num_accepted_tokens": self.num_accepted}.items():
                lines += [f"# TYPE {prefix}:spec_decode_{name} counter"]
                lines += [f'{prefix}:spec_decode_{name}_total{{engine="0"}} {value}']
        return web.Response(text="\n".join(lines) + "\n")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        self.asked.append(asked)
        if self.deals_to:
            next_one = self.deals_to[len(self.asked) % len(self.deals_to)]
            raise web.HTTPTemporaryRedirect(next_one.url.removesuffix("/v1") + request.path)
        fault = self.fault(len(self.asked), asked)
        if fault == "401":
            return web.json_response({"error": f"no: {request.headers.get('Authorization')}"}, status=401)
        if fault == "429":
            return web.json_response({"error": {"message": "slow down"}}, status=429, headers={"Retry-After": "1"})
        if fault == "500":
            return web.json_response({"error": {"message": "out of\nwords"}}, status=500)
        if self.kind == "plain" and (extra := next((key for key in EXTRAS if key in asked), None)):
            message = f"Unrecognized request argument supplied: {extra}"
            return web.json_response({"error": {"message": message}}, status=400)
        if asked.get("echo"):
            return web.json_response(self._scored(asked))
        if not asked.get("stream"):
            return web.json_response({"choices": [{"text": "x", "finish_reason": "length"}]})
        self.num_in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.num_in_flight)
        try:
            return await self._stream(request, asked, fault)
        except ConnectionResetError:  # the client has had enough
            return web.Response()
        finally:
            self.num_in_flight -= 1
            self.num_ended += 1

    async def _stream(self, request: web.Request, asked: dict, fault: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        events = list(self._events(asked, chat=request.path.endswith("chat/completions"), fault=fault))
        for number, event in enumerate(events):
            if number == 2 and fault == "cut":
                request.transport.close()
                return response
            if number == 2 and fault == "stall":
                await asyncio.sleep(3600)
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            text = b"data: " + (event if isinstance(event, bytes) else json.dumps(event).encode())
            for part in self.split(text + self.line * 2):
                await response.write(part)
                if part is not text:
                    await asyncio.sleep(0)
        await response.write_eof()
        return response

    def _events(self, asked: dict, *, chat: bool, fault: str) -> Iterator[Any]:
        limit, sizes = asked["max_tokens"], []
        while sum(sizes) < limit:
            size = 1 if not sizes else self.sizes[(len(sizes) - 1) % len(self.sizes)]
            sizes.append(min(size, limit - sum(sizes)))
        at = 0
        for number, size in enumerate(sizes):
            words = "".join(f" w{n}" for n in range(at, at + size))
            at += size
            if number == 1 and fault == "malformed":
                yield b'{"choices": [{"text": '
            if number == 1 and fault == "error":
                yield {"error": {"message": "engine died", "code": 500}}
                return
            yield self._piece(asked, words, list(range(at - size, at)), at, chat, at == limit)
        if fault != "no-usage":
            name, _, value = fault.partition("=")
            yield _with(self._last(asked, sizes), {name: json.loads(value)} if value else {})
        yield b"[DONE]"

    def _piece(self, asked: dict, words: str, ids: list[int], at: int, chat: bool, is_last: bool) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length" if is_last else None}
        choice |= {"delta": {"content": words}} if chat else {"text": words}
        if self.kind in ("vllm", "sglang") and asked.get("return_token_ids"):
            choice["token_ids"] = ids
        chunk: dict[str, Any] = {"id": "x", "object": "text_completion", "model": "served", "choices": [choice]}
        if self.kind == "llama.cpp" and (asked.get("timings_per_token") or is_last):
            drafts = {"draft_n": 8, "draft_n_accepted": 5} if self.speculates and is_last else {}
            chunk["timings"] = {"predicted_n": at, "predicted_ms": 1.0, "cache_n": 0, **drafts}
        return chunk

    def _last(self, asked: dict, sizes: list[int]) -> dict[str, Any]:
        """The chunk of the usage, and of what each kind tells of its drafts. Three drafts a round."""
        usage: dict[str, Any] = {"prompt_tokens": len(asked.get("prompt", "xx")), "completion_tokens": sum(sizes)}
        usage["prompt_tokens_details"] = {"cached_tokens": self.cached}
        chunk: dict[str, Any] = {"id": "x", "object": "text_completion", "choices": [], "usage": usage}
        accepted = [size - 1 for size in sizes[1:]]
        if accepted:
            accepted[-1] += self.overshoot
        if self.speculates:
            self.num_rounds += len(accepted)
            self.num_drafts += 3 * len(accepted)
            self.num_accepted += sum(accepted)
        histogram = [accepted.count(n) for n in range(4)]
        if self.kind == "vllm" and self.speculates and self.details:
            told: dict[str, Any] = {
                "mean_acceptance_length": 1 + sum(accepted) / max(1, len(accepted)),
                "draft_acceptance_rate": 0.5,
                "acceptance_histogram": histogram,
                "num_spec_steps": len(accepted),
                "num_accepted_draft_tokens": sum(accepted),
                "num_draft_tokens": 3 * len(accepted),
                "num_spec_tokens": 3,
            }
            if self.details == "detailed":
                told |= {"per_step_accepted": accepted, "per_step_drafted": [3] * len(accepted)}
            chunk["metrics"] = {"speculative_decoding": told}
        if self.kind == "sglang" and self.speculates and asked.get("return_spec_tokens_details"):
            chunk["sglext"] = {
                "spec_tokens_details": {
                    "spec_verify_ct": len(accepted),
                    "spec_num_correct_drafts": sum(accepted),
                    "spec_num_proposed_drafts": 3 * len(accepted),
                    "spec_correct_drafts_histogram": histogram,
                }
            }
        return chunk

    def _scored(self, asked: dict) -> dict[str, Any]:
        """The last token is not the likeliest of its place, all others are."""
        num = len(asked["prompt"])
        own = [None, *[-0.5] * (num - 2), -2.0, -0.1]
        best = [None, *[{"a": -0.5, "b": -3.0}] * (num - 2), {"a": -0.25, "b": -2.0}, {"a": -0.1}]
        logprobs = {"token_logprobs": own, "top_logprobs": best}
        return {"choices": [{"text": "", "logprobs": logprobs, "finish_reason": "length"}]}


def _with(chunk: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The chunk with other values of these fields, however deep they are."""
    return {
        name: _with(value, changes) if isinstance(value, dict) else changes.get(name, value)
        for name, value in chunk.items()
    }


@contextmanager
def serving(server: OpenAIServer) -> Iterator[OpenAIServer]:
    """In a thread with a loop of its own; gone, with its connections, when the context ends."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    runner = web.AppRunner(server.app(), shutdown_timeout=0.1)

    async def start() -> None:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", server.port)
        await site.start()
        server.port = runner.addresses[0][1]
        server.url = f"http://127.0.0.1:{server.port}/v1"
        ready.set()

    def work() -> None:
        loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(300)
    server.stop = lambda: (loop.call_soon_threadsafe(loop.stop), thread.join(300))  # type: ignore[attr-defined]
    try:
        yield server
    finally:
        if thread.is_alive():
            server.stop()  # type: ignore[attr-defined]


if __name__ == "__main__":
    with serving(OpenAIServer(kind=sys.argv[1], delay_s=float(sys.argv[2]))) as alone:
        print(alone.url, flush=True)
        sys.stdin.read()
