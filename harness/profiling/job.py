"""What a profiled process is asked to do, and what it says of its rounds."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from specbench.harness.spec.run_config import RunConfig
from specbench.harness.store.files import to_plain

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
        return json.dumps(
            {
                "config": to_plain(self.config.to_dict()),
                "tool": self.tool,
                "num_rounds": self.num_rounds,
                "folder": str(self.folder),
                "trace": None if self.trace is None else str(self.trace),
            }
        )

    @staticmethod
    def from_json(text: str) -> Job:
        raw = json.loads(text)
        return Job(
            config=RunConfig.from_dict(raw["config"]),
            tool=raw["tool"],
            num_rounds=raw["num_rounds"],
            folder=Path(raw["folder"]),
            trace=None if raw["trace"] is None else Path(raw["trace"]),
        )


class ChildError(TypedDict):
    """`is_input`: the user's to mend, as bad input of a run is."""

    is_input: bool
    error: str
    type: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildReport:
    """`engine.json`: the subject, the rounds (steady.SteadyRounds) as the engine and the host's clock
    saw them, and the first lines of a run record (prepare.manifest) without the command."""

    subject: Subject
    rounds: dict[str, Any]
    device: str
    notes: tuple[str, ...]
    manifest: dict[str, Any]

    def write(self, folder: Path) -> None:
        text = json.dumps(to_plain(dataclasses.asdict(self)), indent=1)
        (folder / REPORT).write_text(text, encoding="utf-8")

    @staticmethod
    def read(folder: Path) -> ChildReport:
        raw = json.loads((folder / REPORT).read_text(encoding="utf-8"))
        return ChildReport(**{**raw, "notes": tuple(raw["notes"]), "subject": Subject(**raw["subject"])})


def write_error(folder: Path, error: BaseException) -> None:
    record: ChildError = {"is_input": isinstance(error, ValueError), "error": str(error), "type": type(error).__name__}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ERROR).write_text(json.dumps(record), encoding="utf-8")


def read_error(folder: Path) -> ChildError | None:
    path = folder / ERROR
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
