"""A second engine: a loopback server that streams the words of a prompt back, and what drives it.

It knows texts and times and nothing else. Times are the server's own, made up from a delay a chunk, so that no figure
depends on how fast this machine is.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from specbench.harness.engines.base import Capabilities, Model, OpenProgress, RowSink, Scored
from specbench.harness.engines.load import Load, PromptRequest, cut_at_stop
from specbench.harness.engines.traced import Traced, Tracer
from specbench.harness.engines.warmup import WarmUp
from specbench.harness.registry import EngineKind
from specbench.harness.spec.arm import ArmConfig, ArmSetup
from specbench.harness.spec.conditions import Conditions, RunConfig
from specbench.harness.store.arm_record import EngineFacts, Fact
from specbench.harness.store.inputs_record import ModelRecord
from specbench.harness.store.rows import RequestRow

MS = 1_000_000
DELAY_MS = 10  # of a chunk
TEXT_ONLY = "the echo server streams text only"


class EchoServer(ThreadingHTTPServer):
    """`on_request(number, strategy)` is called before each answer; what it returns is done to the stream: `500` answers
    with that status, `cut` ends it in the middle."""

    daemon_threads = True

    def __init__(self, on_request: Callable[[int, str], str] = lambda number, strategy: ""):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.on_request = on_request
        self.num_requests = 0
        self.delay_ms: Mapping[str, float] = {}  # of a chunk, by strategy

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: EchoServer

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.num_requests += 1
        fault = self.server.on_request(self.server.num_requests, asked["strategy"])
        if fault == "500":
            self.send_error(500, "out of words")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        words, size = asked["prompt"].split()[: asked["max_tokens"]], asked["words_a_chunk"]
        delay_ms = self.server.delay_ms.get(asked["strategy"], DELAY_MS)
        for number, start in enumerate(range(0, len(words), size)):
            if fault == "cut" and number:
                return
            chunk = {"words": words[start : start + size], "at_ms": (number + 1) * delay_ms}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *args: Any) -> None: ...


@contextmanager
def echo_server() -> Iterator[EchoServer]:
    server = EchoServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Words:
    """Counts words, for the lengths of prompts; nobody could turn its ids back."""

    vocab_size = 1 << 20
    bos_id = None
    has_chat_template = False

    def encode(self, text: str) -> list[int]:
        return [len(word) for word in text.split()]

    encode_raw = encode

    def decode(self, ids: list[int]) -> str:
        raise AssertionError("an engine of texts was asked to decode")

    def apply_chat_template(self, messages: list[dict[str, str]]) -> list[int]:
        return self.encode(self.render_chat(messages))

    def render_chat(self, messages: list[dict[str, str]]) -> str:
        raise ValueError("echo has no chat template")


UNKNOWN = Capabilities({fact: TEXT_ONLY for fact in Fact})


@dataclass(frozen=True)
class EchoArm:
    """`no-spec` is a word a chunk; `ngram:k=K` has K + 1."""

    config: ArmConfig
    words_a_chunk: int
    notes: tuple[str, ...] = ()
    graph_parts: None = None
    footprint: int = 0
    capabilities: Capabilities = UNKNOWN

    def setup(self) -> ArmSetup:
        return ArmSetup(options=dict(self.config.options))


@dataclass(frozen=True)
class _Answer:
    words: list[str]
    at_ms: list[float]


@dataclass
class EchoDeployment:
    arm: EchoArm
    url: str
    batch_size: int
    described: EngineFacts = field(
        default_factory=lambda: EngineFacts(version="1", graph_mode=None, backend=None, hardware=None)
    )

    capabilities: Capabilities = UNKNOWN

    def __enter__(self) -> EchoDeployment:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def check(self, load: Load) -> None: ...

    def warm_up(self, load: Load, warmup: WarmUp) -> None:
        answer = self._ask(load.request(0))
        while not warmup.is_done:
            warmup.add(answer.at_ms[-1] / 1e3)

    def measure(self, load: Load, sink: RowSink) -> None:
        free_ms = [0.0] * load.max_concurrency  # when each of the requests in flight has ended
        requests = [load.request(index) for index in range(len(load))]
        with ThreadPoolExecutor(load.max_concurrency) as threads:
            for request, answer in zip(requests, threads.map(self._ask, requests), strict=True):
                slot = free_ms.index(min(free_ms))
                submit_ms = max(free_ms[slot], load.arrival_s[request.id] * 1e3)
                free_ms[slot] = submit_ms + answer.at_ms[-1]
                sink.request(_row(request, answer, submit_ms, " ".join(answer.words)))
                if sink.cancelled:
                    break

    def reset(self) -> None: ...

    def generate(self, requests: Sequence[PromptRequest], sink: RowSink) -> dict[int, str | None]:
        texts: dict[int, str | None] = {}
        for request in requests:
            answer = self._ask(request)
            texts[request.id] = text = cut_at_stop(" ".join(answer.words), request.stop)
            sink.request(_row(request, answer, 0.0, text))
        return texts

    def score(self, ids: Sequence[int], num_scored: int) -> Scored:
        raise AssertionError("scores were asked of an engine that has none")

    def trace(self, load: Load, num_rounds: int, tracer: Tracer) -> Traced:
        raise ValueError(f"engine: no rounds to trace; {TEXT_ONLY}")

    def _ask(self, request: PromptRequest) -> _Answer:
        asked = {
            "prompt": request.text,
            "max_tokens": request.sampling.max_tokens,
            "strategy": self.arm.config.strategy,
            "words_a_chunk": self.arm.words_a_chunk,
        }
        answer = _Answer([], [])
        try:
            with urllib.request.urlopen(self.url, json.dumps(asked).encode(), timeout=300) as stream:
                lines = [line.decode().strip().removeprefix("data: ") for line in stream if line.strip()]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"the server answered {error.code}: {error.reason}") from error
        if not lines or lines.pop() != "[DONE]":
            raise RuntimeError("the server cut the stream")
        for chunk in map(json.loads, lines):
            answer.words.extend(chunk["words"])
            answer.at_ms.append(chunk["at_ms"])
        return answer


def _row(request: PromptRequest, answer: _Answer, submit_ms: float, text: str) -> RequestRow:
    return RequestRow(
        request_id=request.id,
        prompt_id=request.key,
        num_prompt_tokens=len(request.text.split()),
        num_output_tokens=len(answer.words),
        finish_reason="length" if len(answer.words) == request.sampling.max_tokens else "stop",
        t_submit_ns=round(submit_ms * MS),
        t_first_ns=round((submit_ms + answer.at_ms[0]) * MS),
        t_last_ns=round((submit_ms + answer.at_ms[-1]) * MS),
        output_text=text,
    )


class EchoEngine(EngineKind):
    """`--model` is the server's address."""

    name = "echo"

    def resolve(self, arm: ArmConfig, conditions: Conditions) -> EchoArm:
        if arm.strategy not in ("no-spec", "ngram") or arm.engine:
            raise ValueError("the echo server has no such arm; allowed: no-spec, ngram:k=K")
        return EchoArm(arm, 1 + int(arm.options.get("k", 0)))

    def open(self, config: RunConfig, progress: OpenProgress) -> tuple[Model, list[EchoArm]]:
        described = ModelRecord(name="echo", source="a server on this machine", sha256="", synthetic=False)
        model = Model(described=described, vocab_size=Words.vocab_size, tokenizer=Words(), eos_token_ids=())
        return model, [self.resolve(arm, config) for arm in config.arms]

    @contextmanager
    def deploy(self, arm: EchoArm, config: RunConfig, log: Path) -> Iterator[EchoDeployment]:
        yield EchoDeployment(arm, config.model, config.max_concurrency)
