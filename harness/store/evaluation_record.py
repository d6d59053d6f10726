"""An evaluation in the run record: its request, and the source of the questions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskLimit:
    """An lm-eval task and its first `limit` items (None: all; for a group: of each of its tasks)."""

    name: str
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit: {self.limit} is not allowed for {self.name}; allowed: 1 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalConfig:
    """`num_fewshot`: examples before each question (None: the task's own number). `gen_kwargs`: as lm-eval's,
    `max_gen_toks=128`. `include_path`: a folder of further lm-eval tasks. ValueError for invalid values."""

    tasks: tuple[TaskLimit, ...]
    num_fewshot: int | None = None
    apply_chat_template: bool = False
    gen_kwargs: str | None = None
    include_path: str | None = None

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError("tasks: is empty; give lm-eval task names, such as gsm8k")
        names = self.names
        if len(set(names)) < len(names):
            raise ValueError(f"tasks: {', '.join(names)}: a task is given twice; every task must differ")
        if self.num_fewshot is not None and self.num_fewshot < 0:
            raise ValueError(f"num_fewshot: {self.num_fewshot} is not allowed; allowed: 0 or more")

    @property
    def names(self) -> list[str]:
        return [task.name for task in self.tasks]


@dataclass(frozen=True, kw_only=True, slots=True)
class Gsm8kRows:
    """Where the questions and the few-shot examples come from; `notes`: for the reader of the table."""

    test: str
    fewshot: str
    source: str
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationRecord:
    """`sha256`: of everything on disk that determines the questions. `items`: the folder of the items' raw tables,
    relative to run.json."""

    asked: EvalConfig
    items: str
    lm_eval: str
    sha256: str
    gsm8k: Gsm8kRows | None = None
    notes: tuple[str, ...] = ()
