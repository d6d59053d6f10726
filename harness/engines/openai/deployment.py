"""One arm behind a running server: sends loads and turns the answers into rows. Does not start the server."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from specbench.harness.engines.base import Capabilities, RowSink, Scored
from specbench.harness.engines.load import Load, PromptRequest, cut_at_stop
from specbench.harness.engines.traced import Traced, Tracer
from specbench.harness.engines.warmup import WarmUp
from specbench.harness.store.arm_record import EngineFacts, Fact

from .acceptance import rounds_of, step_rows
from .answers import Answer
from .asking import Asking, encode, why_refused
from .block_figures import Totals, request_row
from .clients import Work, send_dealt
from .delay import delay_counters
from .endpoint import ask, send
from .facts import NO_STEPS, unknown_facts
from .metrics_page import counted, read_counters
from .reports import SpecDecoding
from .scores import read_score, score_fields
from .sender import Add, Sender
from .server import Server

CountTokens = Callable[[str], int]
_TOO_BUSY = (408, 425, 429)  # statuses that say nothing about the request


@dataclass(kw_only=True)
class HttpDeployment:
    """`ignore_eos`: for measured loads, which `num_clients` processes send. `count`: counts the tokens of a text, for a
    server that does not report how many it sent; None if this is impossible."""

    server: Server
    asking: Asking
    batch_size: int
    ignore_eos: bool = False
    count: CountTokens | None = None
    hardware: str | None = None
    num_clients: int = 1
    _found_facts: set[Fact] = field(default_factory=set, init=False)  # what its answers turned out to hold

    def __enter__(self) -> HttpDeployment:
        return self

    def __exit__(self, *exc: object) -> None: ...

    @property
    def described(self) -> EngineFacts:
        s = self.server
        config = {"replicas": str(len(s.replicas))} if s.replicas else {}
        if self.num_clients > 1:
            config["client_processes"] = str(self.num_clients)
        return EngineFacts(
            version=s.version, graph_mode=s.graph_mode, backend=s.backend, hardware=self.hardware, config=config
        )

    @property
    def capabilities(self) -> Capabilities:
        unknown = unknown_facts(self.server, has_ids=self.asking.as_ids)
        return Capabilities({fact: why for fact, why in unknown.items() if fact not in self._found_facts})

    def check(self, load: Load) -> None:
        """Asks for one token with every field that the load will send."""
        for index in range(len(load)):
            self.asking.check(load.request(index))
        fields = {**self.asking.fields(load.request(0), ignore_eos=self.ignore_eos), "max_tokens": 1}
        fields.pop("min_tokens", None)  # more than that one
        page = send(self.server.endpoint, self._path, fields)
        if 400 <= page.status < 500 and page.status not in _TOO_BUSY:
            raise ValueError(f"base_url: {self._name}: {why_refused(fields, page.said)}")
        if page.status != 200:
            raise RuntimeError(f"{self._name} does not answer ({page.said})")

    def warm_up(self, load: Load, warmup: WarmUp) -> None:
        """Repeats the load's own prompts until the gaps between pieces are stable or time is up.

        What is in flight when they are stable may end while there is time: a server can go on for seconds with
        requests whose client has gone, beside the first measured ones."""
        answers: list[Answer] = []
        started_s = time.monotonic()

        def add(index: int, answer: Answer) -> None:
            self._complete(answer, load.request(index))
            answers.append(answer)
            for gap_s in np.diff([piece.t_ns for piece in answer.pieces]) / 1e9:
                if not warmup.is_done:
                    warmup.add(float(gap_s))

        def is_over() -> bool:
            return bool(answers) and time.monotonic() - started_s > warmup.max_s

        def is_enough() -> bool:
            return bool(answers) and warmup.is_done

        while not (is_over() or is_enough()):
            self._sender.send(self._bodies(load), [0.0] * len(load), add, is_over, is_enough)
            _raise_if_all_failed(answers)
        for answer in answers:
            self._learn(answer)

    def measure(self, load: Load, sink: RowSink) -> None:
        totals, failed = Totals(), list[Answer]()

        def add(index: int, answer: Answer) -> None:
            prompt = load.request(index)
            self._complete(answer, prompt)
            sink.request(request_row(prompt, answer))
            sink.add_steps(step_rows(index, answer, self.server.draft_depth))
            totals.add(answer)
            if answer.error:
                failed.append(answer)

        before = self._counters()
        delays_ns = self._send_timed(load, add, lambda: sink.cancelled)
        after = self._counters()
        if before is not None and after is not None:
            sink.add_counters(counted(before, after))
        sink.add_counters([*totals.counters(), *delay_counters(delays_ns, totals.gaps_ns)])
        if len(failed) == len(load):
            _raise_if_all_failed(failed)

    def reset(self) -> None:
        """Empties prefix caches if the server allows it; how each request avoids them is in the arm's notes."""
        if self.server.dialect.reset:
            for each in self.server.counted:
                send(each, self.server.dialect.reset)

    def generate(self, requests: Sequence[PromptRequest], sink: RowSink) -> dict[int, str | None]:
        texts: dict[int, str | None] = {}
        failed: list[Answer] = []

        def add(index: int, answer: Answer) -> None:
            prompt = requests[index]
            self._complete(answer, prompt)
            if answer.error or answer.finish_reason == "abort":
                failed.append(answer)
                return
            answer.text = texts[prompt.id] = cut_at_stop(answer.text, prompt.stop)
            sink.request(request_row(prompt, answer))

        bodies = [encode(self.asking.fields(prompt)) for prompt in requests]
        self._sender.send(bodies, [0.0] * len(bodies), add, lambda: sink.cancelled)
        if failed:
            raise RuntimeError(f"{len(failed)} of {len(requests)} requests failed: {failed[0].error or 'abort'}")
        return texts

    def score(self, ids: Sequence[int], num_scored: int) -> Scored:
        self.capabilities.require(Fact.SCORES, "a score")
        page = send(self.server.endpoint, self._path, score_fields(self.asking.model, ids))
        try:
            return read_score(page.json, len(ids), num_scored)
        except ValueError as error:
            raise RuntimeError(f"{self._name}: {error} ({page.said[:200]})") from error

    def trace(self, load: Load, num_rounds: int, tracer: Tracer) -> Traced:
        raise ValueError(
            f"engine: no rounds to trace; {NO_STEPS}; drive its engine in process, or trace it with its own profiler "
            "(/start_profile) and give the file to specbench profile import"
        )

    @property
    def _name(self) -> str:
        return f"{self.server.dialect.name} at {self.server.endpoint.base_url}"

    @property
    def _path(self) -> str:
        endpoint = self.server.endpoint
        return endpoint.base_url.removeprefix(endpoint.root) + self.asking.path

    @property
    def _sender(self) -> Sender:
        endpoint = self.server.endpoint
        url, keeps = endpoint.base_url + self.asking.path, self.asking.dialect.keeps_connections
        return Sender(endpoint, url, self.batch_size, keeps=keeps)

    def _send_timed(self, load: Load, add: Add, is_over: Callable[[], bool]) -> list[int]:
        bodies = self._bodies(load)
        if self.num_clients == 1:
            return self._sender.send_timed(bodies, load.arrival_s, add, is_over)
        work = Work(
            endpoint=self.server.endpoint,
            url=self.server.endpoint.base_url + self.asking.path,
            max_concurrency=self.batch_size,
            keeps=self.asking.dialect.keeps_connections,
            bodies=bodies,
            arrival_s=load.arrival_s,
        )
        return send_dealt(work, self.num_clients, add, is_over)

    def _bodies(self, load: Load) -> list[bytes]:
        """Made before the first is sent, each with a salt that no other request has."""
        salt = secrets.token_hex(8)
        return [
            encode(self.asking.fields(load.request(index), ignore_eos=self.ignore_eos, salt=f"{salt}-{index}"))
            for index in range(len(load))
        ]

    def _counters(self) -> list[dict[str, float]] | None:
        """Of each replica; None if one of them does not report them."""
        if not self.server.has_metrics:
            return None
        pages = [page for each in self.server.counted for page in ask(each, "/metrics")]
        if any(page.status != 200 for page in pages):
            return None
        try:
            return [read_counters(page.text) for page in pages]
        except ValueError:  # a proxy's page for any address, for one
            return None

    def _complete(self, answer: Answer, prompt: PromptRequest) -> None:
        """Fills in what the answer does not contain but is known otherwise, and refuses more tokens than requested."""
        num_tokens, most = answer.num_output_tokens, prompt.sampling.max_tokens
        if num_tokens is not None and num_tokens > most:
            wrong = f"output tokens: the server counted {num_tokens}; allowed: 0 to {most} (max_tokens)"
            answer.refuse(answer.error or wrong)
        if answer.is_refused:
            return
        if answer.num_output_tokens is None and answer.text and self.count is not None:
            answer.num_output_tokens = self.count(answer.text)
        if answer.num_output_tokens is None and not answer.error:
            answer.error = "the server reported no usage, so the number of tokens is unknown; give --tokenizer"
        if answer.speculation is None and self.server.speculates is False:
            answer.speculation = SpecDecoding(per_step_drafted=[], per_step_accepted=[])

    def _learn(self, answer: Answer) -> None:
        if answer.token_ids is not None:
            self._found_facts.add(Fact.TOKEN_IDS)
        if rounds_of(answer) is not None:
            self._found_facts.add(Fact.ACCEPTANCE)


def _raise_if_all_failed(answers: Sequence[Answer]) -> None:
    if answers and all(answer.error for answer in answers):
        raise RuntimeError(f"every request failed: {answers[0].error}")
