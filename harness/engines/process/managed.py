"""A deployment over HTTP that starts its own server, and reports when that server has died."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from specbench.harness.engines.base import Capabilities, Deployment, Model, RowSink, Scored
from specbench.harness.engines.load import Load, PromptRequest
from specbench.harness.engines.openai.asking import Asking
from specbench.harness.engines.openai.deployment import HttpDeployment
from specbench.harness.engines.openai.endpoint import ApiKey, Endpoint
from specbench.harness.engines.openai.server import identify
from specbench.harness.engines.process.server import Patience, RunningServer, running
from specbench.harness.engines.process.server_command import ServerCommand
from specbench.harness.engines.traced import Traced, Tracer
from specbench.harness.engines.warmup import WarmUp
from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.conditions import Conditions
from specbench.harness.store.arm_record import EngineFacts


@contextmanager
def managed(
    command: ServerCommand,
    arm: ArmConfig,
    conditions: Conditions,
    *,
    path: str,
    model: Model,
    say: Callable[[str], None],
    log: Path,
) -> Iterator[Deployment]:
    """`path`: replaces {model} in the command. Prompts are sent as token ids if the server accepts them.

    ValueError and RuntimeError as raised by `running`; ValueError for a server that contradicts the arm.
    """
    patience = Patience(startup_s=conditions.engine_startup_timeout)
    with running(command, model=path, label=arm.label, say=say, log=log, patience=patience) as server:
        identity = identify(Endpoint.parse(server.base_url, ApiKey("")))
        identity.check_label(arm.strategy)
        tokenizer = model.tokenizer
        served = HttpDeployment(
            server=identity,
            asking=Asking(
                dialect=identity.dialect,
                model=identity.models[0] if identity.models else path,
                as_ids=identity.dialect.takes_ids,
                eos_ids=model.eos_token_ids,
            ),
            batch_size=conditions.max_concurrency,
            ignore_eos=conditions.ignore_eos,
            num_clients=conditions.num_clients,
            count=None if tokenizer is None else lambda text: len(tokenizer.encode_raw(text)),
        )
        yield _Managed(served, server)


@dataclass(frozen=True, slots=True)
class _Managed:
    """The deployment of `server`; if the server has ended, that is reported as the cause of failures."""

    inner: HttpDeployment
    server: RunningServer

    @property
    def described(self) -> EngineFacts:
        return self.inner.described

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    @property
    def batch_size(self) -> int:
        return self.inner.batch_size

    def check(self, load: Load) -> None:
        with self._explained():
            self.inner.check(load)

    def warm_up(self, load: Load, warmup: WarmUp) -> None:
        with self._explained():
            self.inner.warm_up(load, warmup)

    def measure(self, load: Load, sink: RowSink) -> None:
        with self._explained():
            self.inner.measure(load, sink)

    def reset(self) -> None:
        with self._explained():
            self.inner.reset()

    def generate(self, requests: Sequence[PromptRequest], sink: RowSink) -> dict[int, str | None]:
        with self._explained():
            return self.inner.generate(requests, sink)

    def score(self, ids: Sequence[int], num_scored: int) -> Scored:
        with self._explained():
            return self.inner.score(ids, num_scored)

    def trace(self, load: Load, num_rounds: int, tracer: Tracer) -> Traced:
        return self.inner.trace(load, num_rounds, tracer)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """A server may die during the last requests of a block, which then fail one by one; the block fails, too."""
        try:
            yield
            self.server.check_alive()
        except (RuntimeError, OSError) as error:
            explained = self.server.explained(error)
            if explained is error:
                raise
            raise explained from error
