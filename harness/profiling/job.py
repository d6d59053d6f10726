"""What a profiled process is asked to do, and what it says of its rounds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from specbench.harness.engines.traced import SteadyRounds
from specbench.harness.spec.run_config import RunConfig
from specbench.harness.store.codec import from_document, read_object, to_document, write_document
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


class ChildError(TypedDict):
    """`is_input`: the user's to mend, as bad input of a run is."""

    is_input: bool
    error: str
    type: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildReport:
    """`engine.json`: the subject, the rounds as the engine and the host's clock
    saw them, and the beginning of a run record (prepare.initial_record)."""

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


def write_error(folder: Path, error: BaseException) -> None:
    record: ChildError = {"is_input": isinstance(error, ValueError), "error": str(error), "type": type(error).__name__}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ERROR).write_text(json.dumps(record), encoding="utf-8")


def read_error(folder: Path) -> ChildError | None:
    path = folder / ERROR
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
