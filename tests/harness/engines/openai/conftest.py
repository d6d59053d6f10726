"""Servers of OpenAI's protocol on this machine, and sinks that keep what they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from cli.conftest import _wide_and_colourless, chat_model, cli, only_run, runs  # noqa: F401
from toy.openai_server import OpenAIServer, serving

from specbench.harness.engines.load import Load
from specbench.harness.engines.openai.asking import Asking
from specbench.harness.engines.openai.deployment import HttpDeployment
from specbench.harness.engines.openai.endpoint import ApiKey, Endpoint
from specbench.harness.engines.openai.server import identify
from specbench.harness.run.block_sink import NullSink
from specbench.harness.store.rows import CounterRow, RequestRow, StepRow
from specbench.workloads.base import Prompt


class Kept(NullSink):
    """A sink that keeps its rows and is cancelled after `most` requests."""

    def __init__(self, most: int | None = None):
        self.requests: list[RequestRow] = []
        self.steps: list[StepRow] = []
        self.counters: dict[str, float] = {}
        self.most = most

    @property
    def cancelled(self) -> bool:  # type: ignore[override]
        return self.most is not None and len(self.requests) >= self.most

    def request(self, row: RequestRow) -> None:
        self.requests.append(row)

    def add_steps(self, rows: list[StepRow]) -> None:  # type: ignore[override]
        self.steps += rows

    def add_counters(self, rows: list[CounterRow]) -> None:  # type: ignore[override]
        self.counters |= {row.name: row.value for row in rows}


@pytest.fixture
def serve() -> Iterator[Callable[..., OpenAIServer]]:
    """Starts servers that end with the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(serving(OpenAIServer(**options)))


def deployment_of(server: OpenAIServer, *, concurrency: int = 2, key: str = "", **asking: object) -> HttpDeployment:
    found = identify(Endpoint.parse(server.url, ApiKey(key)))
    how = Asking(dialect=found.dialect, model="served", **{"as_ids": found.dialect.takes_ids, **asking})  # type: ignore[arg-type]
    return HttpDeployment(server=found, asking=how, batch_size=concurrency)


def load_of(
    num_prompts: int = 4, *, max_tokens: int = 6, concurrency: int = 2, gap_s: float = 0.0, **changes: object
) -> Load:
    prompts = [
        Prompt(id=f"p{n}", token_ids=(1, 2, n), max_tokens=max_tokens, text=f"word {n}") for n in range(num_prompts)
    ]
    given = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "stop_token_ids": (), "seed": 1, **changes}
    arrival_s = [gap_s * n for n in range(num_prompts)]
    return Load(prompts=prompts, arrival_s=arrival_s, max_concurrency=concurrency, **given)  # type: ignore[arg-type]
