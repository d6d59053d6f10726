"""The engine interface: what runs, experiments and certificates know of an engine.

    engine = Engines(config)                       # several.py: each arm goes to the engine that it names
    model, arms = engine.open(config, say)         # arms checked first, then weights loaded or a server asked
    with engine.deploy(arm, config, log) as deployment:
        deployment.check(load)
        deployment.warm_up(load, WarmUp())
        deployment.measure(load, sink)             # rows go to the sink as they end

An engine object belongs to one run: what its deployments share (weights, memory for keys and values) it loads once.
What an engine does not know is None in its rows, with the reason in its capabilities; never a zero, never a guess.
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
    """`unknown`: what the engine does not know or cannot do, each with the reason as a reader of a table gets it."""

    unknown: Mapping[Fact, str] = field(default_factory=dict)

    def knows(self, fact: Fact) -> bool:
        return fact not in self.unknown

    def require(self, fact: Fact, for_what: str) -> None:
        """ValueError with the engine's reason where it does not know `fact`."""
        if fact in self.unknown:
            raise ValueError(f"engine: {for_what} needs {fact.value}; {self.unknown[fact]}")


class ResolvedArm(Protocol):
    """An arm whose every switch is known, for one engine."""

    @property
    def config(self) -> ArmConfig: ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of its row must know."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What its engine knows, as far as that can be told before it runs."""
        ...

    @property
    def graph_parts(self) -> GraphPlan | None:
        """How each part of a step runs; None where the engine does not tell."""
        ...

    @property
    def footprint(self) -> int:
        """Deployments share memory; the one with the largest comes first."""
        ...

    def setup(self) -> ArmSetup:
        """Its switches, for the record."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """What is served. `described` goes into the run record. `tokenizer` is None if there is none; `eos_token_ids`
    end an answer. `has_token_ids`: prompts are the model's own tokens, not what stands in for them."""

    described: ModelRecord
    vocab_size: int
    tokenizer: ChatTokenizer | None
    eos_token_ids: tuple[int, ...]
    has_token_ids: bool = True


class RowSink(Protocol):
    """Takes rows as they end. What it has taken is kept, whatever happens next."""

    @property
    def cancelled(self) -> bool:
        """Nothing more is wanted: end what is in flight and return."""
        ...

    def request(self, row: RequestRow) -> None: ...

    def add_steps(self, rows: Sequence[StepRow]) -> None: ...

    def add_phases(self, rows: Sequence[PhaseRow]) -> None: ...

    def add_counters(self, rows: Sequence[CounterRow]) -> None: ...

    def add_logprobs(self, rows: Sequence[LogprobRow]) -> None: ...


@dataclass(frozen=True, slots=True)
class Scored:
    """`log_prob`: of all scored tokens together; `is_greedy`: whether each is the likeliest of its position.

    `regrets`: by token, how far its log-probability lies below the likeliest one's; the same in logits, without a
    temperature. None where the engine does not tell.
    """

    log_prob: float
    is_greedy: bool
    regrets: tuple[float, ...] | None = None

    @staticmethod
    def of(log_probs: Sequence[float], best: Sequence[float]) -> Scored:
        """By token, its own log-probability and that of the likeliest one: which may be it."""
        pairs = list(zip(log_probs, best, strict=True))
        return Scored(sum(log_probs), all(own >= top for own, top in pairs), tuple(top - own for own, top in pairs))


class Deployment(Protocol):
    """One arm, ready to be asked. It does one thing at a time and is idle between calls."""

    @property
    def described(self) -> EngineFacts: ...

    @property
    def capabilities(self) -> Capabilities:
        """As it turned out; stored with the arm once it is warm."""
        ...

    @property
    def batch_size(self) -> int:
        """Most requests in flight."""
        ...

    def check(self, load: Load) -> None:
        """ValueError for a request that can never be served."""
        ...

    def warm_up(self, load: Load, warmup: WarmUp) -> None:
        """Sends requests until times are stable, as `warmup` is told and says."""
        ...

    def measure(self, load: Load, sink: RowSink) -> None:
        """Sends every prompt once and waits for all. RuntimeError and the like for what went wrong on the way."""
        ...

    def reset(self) -> None:
        """Before a block: empties prefix caches and counters."""
        ...

    def generate(self, requests: Sequence[PromptRequest], sink: RowSink) -> dict[int, str | None]:
        """Texts by request id, cut at stop strings; None where there is no tokenizer. Rows hold what was kept."""
        ...

    def score(self, ids: Sequence[int], num_scored: int) -> Scored:
        """The last `num_scored` of `ids`, each behind all before it."""
        ...

    def trace(self, load: Load, num_rounds: int, tracer: Tracer) -> Traced:
        """Full decode rounds under a profiler. ValueError where the load cannot keep the batch full for so long."""
        ...


class NotReadyError(RuntimeError):
    """A program that was not ready in the time it had. Whoever waited so long does not wait again."""

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
        """It runs as another program, whose memory and start are its own."""
        ...

    def resolve(self, arm: ArmConfig, conditions: Conditions) -> ResolvedArm:
        """ValueError (`Refused` for what may not be combined) before anything is loaded or started."""
        ...

    def open(self, config: RunConfig, progress: OpenProgress) -> tuple[Model, list[ResolvedArm]]:
        """Resolves the config's arms, loads what they share, and fills in what depends on it. ValueError as above."""
        ...

    def close(self) -> None:
        """Ends what deployments shared, when the last one has ended, and what was begun and not deployed."""
        ...

    def can_begin(self, arm: ResolvedArm) -> bool:
        """Whether the arm's program may start while others do: nothing that it decides then depends on the memory that
        they take meanwhile."""
        ...

    def begin(self, arm: ResolvedArm, config: RunConfig, log: Path) -> None:
        """Starts the program of an arm that `can_begin`; its `deploy` waits for it. RuntimeError where it cannot."""
        ...

    def deploy(self, arm: ResolvedArm, config: RunConfig, log: Path) -> AbstractContextManager[Deployment]:
        """A process, a server, an object, an address; gone for certain when the context ends. A program that is started
        adds what it prints to `log`. ValueError for what the user can mend, NotReadyError for a program that takes
        longer than `engine_startup_timeout`, RuntimeError for memory that does not suffice and everything else."""
        ...


def with_arm(arm: ArmConfig, text: str) -> str:
    """An error's text with the arm that it is about."""
    return text if text.startswith((f"{arm.strategy}:", f"{arm.label}:")) else f"{arm.label}: {text}"


@contextmanager
def naming(arm: ArmConfig) -> Iterator[None]:
    """A ValueError that is raised inside says which arm it is about."""
    try:
        yield
    except ValueError as error:
        raise ValueError(with_arm(arm, str(error))) from error
