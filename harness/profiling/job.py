"""The job of a profiled process, and what it reports about its rounds."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from specbench.harness.engines.base import ResolvedArm
from specbench.harness.engines.traced import SteadyRounds, Traced
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.store.codec import from_document, read_object, to_document, write_document
from specbench.harness.store.files import write_json
from specbench.harness.store.run_record import RunRecord

from .record import Subject

TOOLS = ("nsys", "torch", "none")
REPORT = "engine.json"
ERROR = "error.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One arm, one process. It writes `engine.json` (a ChildReport) and `nodes.json` into `folder`, or `error.json`.

    config: with that one arm. tool: nsys (the process opens nsys's capture range), torch (it writes its own trace to
    `trace`) or none (the unprofiled twin).
    """

    config: RunConfig
    tool: str
    num_rounds: int
    folder: Path
    trace: Path | None = None

    def __post_init__(self) -> None:
        assert self.tool in TOOLS and len(self.config.arms) == 1
        assert (self.trace is not None) == (self.tool == "torch")

    def to_json(self) -> str:
        return json.dumps(to_document(self))

    @staticmethod
    def from_json(text: str) -> Job:
        return from_document(Job, json.loads(text), "job")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildReport:
    """`engine.json`: the subject, the rounds as seen by the engine and the host's clock, and the start of a run record
    (prepare.initial_record)."""

    subject: Subject
    rounds: SteadyRounds
    device: str
    notes: tuple[str, ...]
    record: RunRecord

    def write(self, folder: Path) -> None:
        write_document(folder / REPORT, self)

    @staticmethod
    def read(folder: Path) -> ChildReport:
        return from_document(ChildReport, read_object(folder / REPORT), str(folder / REPORT))


def subject_of(arm: ResolvedArm, traced: Traced) -> Subject:
    """The subject without the profiler's command, which the traced process does not know."""
    return Subject(
        arm=arm.config.label,
        strategy=arm.config.strategy,
        config=dataclasses.asdict(arm.setup()),
        graph_plan=traced.graph_plan,
        batch_size=traced.rounds.batch_size,
        num_drafts=traced.num_drafts,
        claimed_parts=traced.claimed_parts,
        engine_syncs_per_round=traced.rounds.syncs_per_round,
    )


def write_error(folder: Path, error: Exception) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    is_input = isinstance(error, ValueError)
    write_json(folder / ERROR, {"is_input": is_input, "error": str(error), "type": type(error).__name__})


def read_error(folder: Path) -> Exception | None:
    """The error of the process, if it wrote one: ValueError for what the user can fix."""
    path = folder / ERROR
    if not path.is_file():
        return None
    raw = read_object(path)
    text = str(raw["error"])
    return ValueError(text) if raw["is_input"] else RuntimeError(f"{raw['type']}: {text}")
