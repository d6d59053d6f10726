"""The engine interface: what runs, experiments and certificates know of an engine.

    engine = Engines(config)                       # several.py: each arm goes to the engine that it names
    model, arms = engine.open(config, say)         # arms checked first, then weights loaded or a server asked
    with engine.deploy(arm, config, log) as deployment:
        deployment.check(load)
        deployment.warm_up(load, WarmUp())
        deployment.measure(load, sink)             # rows go to the sink as they end

An engine object belongs to one run: it loads once what its deployments share (weights, KV cache memory). What an engine
does not know is None in its rows, with the reason in its capabilities; never zero, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from specbench.harness.engines.load import Load, PromptRequest
from specbench.harness.engines.traced import Traced, Tracer
from specbench.harness.engines.warmup import WarmUp
from specbench.harness.spec.arm import ArmConfig, ArmSetup
from specbench.harness.spec.conditions import Conditions, RunConfig
from specbench.harness.spec.plans import GraphPlan
from specbench.harness.store.arm_record import EngineFacts, Fact
from specbench.harness.store.inputs_record import ModelRecord
from specbench.harness.store.rows import CounterRow, LogprobRow, PhaseRow, RequestRow, StepRow
from specbench.workloads.base import ChatTokenizer


@dataclass(frozen=True, slots=True)
class Capabilities:
    """`unknown`: what the engine does not know or cannot do, each with the reason, worded for the reader of a table."""

    unknown: Mapping[Fact, str] = field(default_factory=dict)

    def knows(self, fact: Fact) -> bool:
        return fact not in self.unknown

    def require(self, fact: Fact, for_what: str) -> None:
        """ValueError with the engine's reason if it does not know `fact`."""
        if fact in self.unknown:
            raise ValueError(f"engine: {for_what} needs {fact.value}; {self.unknown[fact]}")


class ResolvedArm(Protocol):
    """An arm with all switches resolved, for one engine."""

    @property
    def config(self) -> ArmConfig: ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the reader of its row."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What its engine knows, as far as this can be determined before it runs."""
        ...

    @property
    def graph_parts(self) -> GraphPlan | None:
        """How each part of a step runs; None if the engine does not report it."""
        ...

    @property
    def footprint(self) -> int:
        """Deployments share memory; the one with the largest comes first."""
        ...

    def setup(self) -> ArmSetup:
        """The resolved switches, for the run record."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """The served model. `described` goes into the run record. `tokenizer` is None if there is none; `eos_token_ids` end
    an answer. `has_token_ids`: prompts are the model's own tokens, not a substitute."""

    described: ModelRecord
    vocab_size: int
    tokenizer: ChatTokenizer | None
    eos_token_ids: tuple[int, ...]
    has_token_ids: bool = True


class RowSink(Protocol):
    """Receives rows as they are finished. Received rows are kept, whatever happens next."""

    @property
    def cancelled(self) -> bool:
        """Whether to cancel: abort what is in flight and return."""
        ...

    def request(self, row: RequestRow) -> None: ...

    def add_steps(self, rows: Sequence[StepRow]) -> None: ...

    def add_phases(self, rows: Sequence[PhaseRow]) -> None: ...

    def add_counters(self, rows: Sequence[CounterRow]) -> None: ...

    def add_logprobs(self, rows: Sequence[LogprobRow]) -> None: ...


@dataclass(frozen=True, slots=True)
class Scored:
    """`log_prob`: the sum over all scored tokens; `is_greedy`: whether each is the likeliest at its position.

    `regrets`: by token, how far its log-probability is below that of the likeliest token; the same in logits, without a
    temperature. None if the engine does not report it.
    """

    log_prob: float
    is_greedy: bool
    regrets: tuple[float, ...] | None = None

    @staticmethod
    def of(log_probs: Sequence[float], best: Sequence[float]) -> Scored:
        """From each token's log-probability and that of the likeliest token, which may be the same."""
        pairs = list(zip(log_probs, best, strict=True))
        return Scored(sum(log_probs), all(own >= top for own, top in pairs), tuple(top - own for own, top in pairs))


class Deployment(Protocol):
    """One arm, ready to serve requests. It does one thing at a time and is idle between calls."""

    @property
    def described(self) -> EngineFacts: ...

    @property
    def capabilities(self) -> Capabilities:
        """Its actual state; stored with the arm after warm-up."""
        ...

    @property
    def batch_size(self) -> int:
        """Maximum number of requests in flight."""
        ...

    def check(self, load: Load) -> None:
        """ValueError for a request that can never be served."""
        ...

    def warm_up(self, load: Load, warmup: WarmUp) -> None:
        """Sends requests until `warmup`, which gets their times, reports that these are stable."""
        ...

    def measure(self, load: Load, sink: RowSink) -> None:
        """Sends every prompt once and waits for all of them. RuntimeError and similar for failures."""
        ...

    def reset(self) -> None:
        """Before a block: empties prefix caches and counters."""
        ...

    def generate(self, requests: Sequence[PromptRequest], sink: RowSink) -> dict[int, str | None]:
        """Texts by request id, cut at stop strings; None without a tokenizer. Rows contain the tokens that were kept.
        RuntimeError if requests failed or were aborted, which have no rows: part of an answer is not scored as one."""
        ...

    def score(self, ids: Sequence[int], num_scored: int) -> Scored:
        """Scores the last `num_scored` of `ids`, each given all tokens before it."""
        ...

    def trace(self, load: Load, num_rounds: int, tracer: Tracer) -> Traced:
        """Runs full decode rounds under a profiler. ValueError if the load cannot keep the batch full for that long."""
        ...


class EndedError(RuntimeError):
    """The engine ended in an earlier block, which reported why; no further block can run."""


class NotReadyError(RuntimeError):
    """A program that was not ready within its time limit. It is not waited for a second time."""

    SAID = "is not ready after"


class OpenProgress(Protocol):
    def say(self, text: str) -> None: ...

    def asset(self, name: str, done: int, total: int) -> None:
        """Bytes of a download: `done` of `total` (0: unknown)."""
        ...


class Engine(Protocol):
    """One kind of engine in one run. Its class is an `EngineKind` (registry.py)."""

    @property
    def name(self) -> str: ...

    @property
    def takes_program(self) -> bool:
        """Whether it runs as a separate program, with its own memory and start-up."""
        ...

    def resolve(self, arm: ArmConfig, conditions: Conditions) -> ResolvedArm:
        """Resolves an arm. ValueError (`Refused` for illegal combinations) before anything is loaded or started."""
        ...

    def open(self, config: RunConfig, progress: OpenProgress) -> tuple[Model, list[ResolvedArm]]:
        """Resolves the config's arms, loads what they share, and fills in what depends on it. ValueError as above."""
        ...

    def close(self) -> None:
        """Frees what the deployments shared, after the last one has ended, and what was started but not deployed."""
        ...

    def can_begin(self, arm: ResolvedArm) -> bool:
        """Whether the arm's program may start while others do: nothing that it decides then depends on the memory that
        they take meanwhile."""
        ...

    def begin(self, arm: ResolvedArm, config: RunConfig, log: Path) -> None:
        """Starts the program of an arm that `can_begin`; its `deploy` waits for it. RuntimeError where it cannot."""
        ...

    def deploy(self, arm: ResolvedArm, config: RunConfig, log: Path) -> AbstractContextManager[Deployment]:
        """A process, a server, an object or an address, guaranteed to be gone when the context ends. A started program
        appends its output to `log`. ValueError for what the user can fix, NotReadyError for a program that takes longer
        than `engine_startup_timeout`, RuntimeError for insufficient memory and everything else."""
        ...


def with_arm(arm: ArmConfig, text: str) -> str:
    """An error's text prefixed with the arm's label."""
    return text if text.startswith((f"{arm.strategy}:", f"{arm.label}:")) else f"{arm.label}: {text}"


@contextmanager
def naming(arm: ArmConfig) -> Iterator[None]:
    """Prefixes ValueErrors raised in this context with the arm's label."""
    try:
        yield
    except ValueError as error:
        raise ValueError(with_arm(arm, str(error))) from error
