"""Where the tasks of an evaluation come from: GSM8K over our rows, a folder of the user's, lm-eval's own."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specbench.harness.quality.lm_evaluation.gsm8k_task import find_rows, sha256_of_rows, task_folder
from specbench.harness.store.evaluation_record import EvalConfig, EvaluationRecord, Gsm8kRows
from specbench.workloads.assets.cache import Progress

if TYPE_CHECKING:
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.tasks import TaskManager

GSM8K = "gsm8k"
DEFAULT_MAX_GEN_TOKENS = 256  # as lm-eval's `hf`, where a task does not say


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSources:
    """`gsm8k`: rows of lm-eval's task of that name, None where it is not asked for or the user's folder brings its own.
    `sha256`: of everything on this disk that decides the questions. `notes`: what a reader of the table must know."""

    gsm8k: Gsm8kRows | None
    include_path: str | None
    sha256: str
    notes: tuple[str, ...]

    @property
    def source(self) -> str:
        parts = [self.gsm8k.source if self.gsm8k else "", f"tasks of {self.include_path}" if self.include_path else ""]
        return "; ".join(filter(None, parts)) or "lm-eval's own"


def find_sources(
    asked: EvalConfig, gsm8k_path: str | None = None, fewshot_path: str | None = None, progress: Progress | None = None
) -> TaskSources:
    """Fetches GSM8K where it is asked for. Raises ValueError where rows or the user's folder cannot be had."""
    rows = None
    if GSM8K in asked.names and GSM8K not in _own_tasks(asked.include_path):
        rows = find_rows(gsm8k_path, fewshot_path, progress)
    elif gsm8k_path is not None or fewshot_path is not None:
        raise ValueError(f"gsm8k_path, fewshot_path: of no use; the tasks are {', '.join(asked.names)}")
    return TaskSources(
        gsm8k=rows,
        include_path=asked.include_path,
        sha256=_sha256(rows, asked.include_path),
        notes=rows.notes if rows else (),
    )


def stored_sources(record: EvaluationRecord) -> TaskSources:
    """The sources that `run.json` names. ValueError where their bytes have changed since."""
    include_path = record.asked.include_path
    if _sha256(record.gsm8k, include_path) != record.sha256:
        raise ValueError("resume: the questions of the evaluation have changed since; start a new one")
    return TaskSources(gsm8k=record.gsm8k, include_path=include_path, sha256=record.sha256, notes=record.notes)


def evaluation_record(asked: EvalConfig, sources: TaskSources, notes: Sequence[str], items: str) -> EvaluationRecord:
    """What run.json says of an evaluation. `items`: the folder of the items' raw tables, seen from run.json."""
    from importlib.metadata import version

    return EvaluationRecord(
        asked=asked,
        gsm8k=sources.gsm8k,
        sha256=sources.sha256,
        notes=(*sources.notes, *notes),
        lm_eval=version("lm_eval"),
        items=items,
    )


@contextmanager
def open_tasks(asked: EvalConfig, sources: TaskSources) -> Iterator[TaskManager]:
    """lm-eval's TaskManager that knows the tasks asked for. ValueError for a name that it does not know."""
    from lm_eval.tasks import TaskManager

    with ExitStack() as stack:
        folders = [sources.include_path] if sources.include_path else []
        if sources.gsm8k is not None:
            folders.append(str(stack.enter_context(task_folder(sources.gsm8k))))
        known = {GSM8K} if sources.gsm8k else set()
        known |= _own_tasks(sources.include_path)
        # Reading all of lm-eval's own tasks takes ten seconds.
        manager = TaskManager(include_path=list(folders), include_defaults=not known.issuperset(asked.names))
        for name in asked.names:
            if name not in manager.task_index:
                raise ValueError(_unknown(name, manager.all_tasks))
        yield manager


def check_tasks(asked: EvalConfig, sources: TaskSources, max_model_len: int) -> tuple[str, ...]:
    """Loads the tasks as the evaluation will, rows and all, before anything is measured; notes on their examples.

    Raises ValueError for an unknown task, for rows that cannot be had, and for answers longer than `max_model_len`.
    """
    with open_tasks(asked, sources) as manager:
        try:
            tasks = manager.load(asked.names)["tasks"]
        except Exception as error:  # lm-eval, datasets and the hub raise what they like; none of it is ours
            raise ValueError(f"tasks: cannot load {', '.join(asked.names)}: {error}") from error
    notes = []
    for name, task in tasks.items():
        _check_length(name, task, asked, max_model_len)
        if _shots(task, asked) and _examples_are_asked(name, task):
            notes.append(f"few-shot examples of {name} are other rows of the split that is asked, as the task says")
    return tuple(notes)


def _check_length(name: str, task: ConfigurableTask, asked: EvalConfig, max_model_len: int) -> None:
    if task.get_config("output_type") != "generate_until":
        return
    from lm_eval.utils import simple_parse_args_string

    given = {**(task.config.generation_kwargs or {}), **simple_parse_args_string(asked.gen_kwargs or "")}
    longest = int(given.get("max_gen_toks", DEFAULT_MAX_GEN_TOKENS))
    if longest >= max_model_len:
        raise ValueError(
            f"max_model_len: {max_model_len} is too short for {name}, whose answers take up to {longest} tokens"
        )


def _shots(task: ConfigurableTask, asked: EvalConfig) -> int:
    own = task.config.num_fewshot
    return own or 0 if asked.num_fewshot is None or own == 0 else asked.num_fewshot  # as lm-eval: its 0 stays 0


def _examples_are_asked(name: str, task: ConfigurableTask) -> bool:
    """Whether examples are rows that are asked too. lm-eval then leaves out the asked row, but only where the task
    names that split: otherwise a question would stand above itself, answer and all, which is refused."""
    config, fewshot = task.config, task.fewshot_cfg
    if fewshot.samples is not None:
        return False
    asked = config.test_split or config.validation_split
    if fewshot.split is None and (config.training_split or config.validation_split or asked) == asked:
        raise ValueError(
            f"num_fewshot: {name} has no rows for examples but those that are asked; give 0, or a fewshot_split"
        )
    return fewshot.split == asked


def _own_tasks(include_path: str | None) -> set[str]:
    """Names of single tasks in the user's folder; its groups and tags may need lm-eval's own tasks."""
    if include_path is None:
        return set()
    if not Path(include_path).is_dir():
        raise ValueError(f"include_path: {include_path} is not a directory; give a folder of lm-eval task files")
    from lm_eval.tasks import TaskManager

    return set(TaskManager(include_path=include_path, include_defaults=False).all_subtasks)


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else "`lm-eval ls tasks` lists lm-eval's, --include-path adds yours"
    return f"tasks: {name!r} is not known to lm-eval; {hint}"


def _sha256(rows: Gsm8kRows | None, include_path: str | None) -> str:
    digest = hashlib.sha256(sha256_of_rows(rows).encode() if rows else b"")
    if include_path is not None:
        folder = Path(include_path)
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
            digest.update(f"{path.relative_to(folder)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\0".encode())
    return digest.hexdigest()
