"""What an evaluation is asked to do: lm-eval tasks with how many items of each, and how they are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specbench.harness.spec.arm import ArmConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskLimit:
    """An lm-eval task and its first `limit` items (None: all; of a group: of each of its tasks)."""

    name: str
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit: {self.limit} is not allowed for {self.name}; must be >= 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalConfig:
    """`num_fewshot`: examples before each question (None: the task's own number). `gen_kwargs`: as lm-eval's,
    `max_gen_toks=128`. `include_path`: a folder of further lm-eval tasks. ValueError for what cannot be."""

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
            raise ValueError(f"num_fewshot: {self.num_fewshot} is not allowed; must be >= 0")

    @property
    def names(self) -> list[str]:
        return [task.name for task in self.tasks]

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> EvalConfig:
        """The config of a stored evaluation. ValueError for one that this version did not write."""
        try:
            return EvalConfig(**{**raw, "tasks": tuple(TaskLimit(**task) for task in raw["tasks"])})
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"evaluation: run.json was not written by this version ({error}); use the specbench that wrote it"
            ) from error


def parse_tasks(text: str, limit: int | None = None) -> tuple[TaskLimit, ...]:
    """`gsm8k:200,other`: names, each with a limit of its own or else `limit`. ValueError for what is no number."""
    found = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, colon, number = word.partition(":")
        if colon and not number.isdigit():
            raise ValueError(f"tasks: {word!r} is not allowed; give NAME or NAME:LIMIT, as gsm8k:200")
        found.append(TaskLimit(name=name, limit=int(number) if colon else limit))
    return tuple(found)


def check_real_text(arms: Sequence[ArmConfig]) -> None:
    """ValueError for an arm whose acceptance is forced: it accepts wrong drafts, so its text is nobody's answer."""
    forced = [arm.label for arm in arms if arm.engine.get("acceptance", "real") != "real"]
    if forced:
        raise ValueError(f"acceptance: {forced[0]}: forced acceptance gives wrong text, which has no accuracy; drop it")
