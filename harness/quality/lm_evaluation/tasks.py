"""The tasks of an evaluation and the source of their questions.

GSM8K uses our own rows; other tasks come from a folder of the user or from lm-eval itself.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specbench.harness.quality.lm_evaluation.gsm8k import find_rows, sha256_of_rows, task_folder
from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.sampling import SamplingParams
from specbench.harness.store.evaluation_record import EvalConfig, EvaluationRecord, Gsm8kRows, TaskLimit
from specbench.workloads.assets.cache import Progress

if TYPE_CHECKING:
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.tasks import TaskManager

GSM8K = "gsm8k"
DEFAULT_MAX_GEN_TOKENS = 256  # as in lm-eval's `hf`, if a task does not set it
GENERATION_KEYS = ("until", "max_gen_toks", "do_sample", "temperature", "top_k", "top_p")  # lm-eval's aliases resolved


def require_lm_eval() -> None:
    """lm-eval is optional: ValueError with the install command."""
    if find_spec("lm_eval") is None:
        raise ValueError(
            "accuracy: lm-eval is not installed; install it with: pip install 'specbench-harness[accuracy]'"
        )


def parse_tasks(text: str, limit: int | None = None) -> tuple[TaskLimit, ...]:
    """`gsm8k:200,other`: names, each with its own limit, else `limit`. ValueError for a limit that is not a number."""
    tasks = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, colon, number = word.partition(":")
        if colon and not number.isdigit():
            raise ValueError(f"tasks: {word!r} is not allowed; give NAME or NAME:LIMIT, as gsm8k:200")
        tasks.append(TaskLimit(name=name, limit=int(number) if colon else limit))
    return tuple(tasks)


def check_real_text(arms: Sequence[ArmConfig]) -> None:
    """ValueError for an arm with forced acceptance, which accepts wrong drafts, so its text has no accuracy."""
    forced = [arm.label for arm in arms if arm.engine.get("acceptance", "real") != "real"]
    if forced:
        raise ValueError(
            f"acceptance: {forced[0]}: forced acceptance gives wrong text, which has no accuracy; remove it"
        )


def check_gen_kwargs(text: str | None) -> None:
    """`max_gen_toks=128,temperature=0.7`, read as lm-eval reads it, before anything is loaded. ValueError for a key or
    value that the engine does not know."""
    from lm_eval.models.utils import normalize_gen_kwargs
    from lm_eval.utils import simple_parse_args_string

    try:
        options = dict(normalize_gen_kwargs(simple_parse_args_string(text)))
        sampling_of(options)
    except (TypeError, ValueError) as error:
        raise ValueError(f"gen_kwargs: {text!r} is not allowed: {error}; give it as max_gen_toks=128") from error
    check_generation_keys(options)


def check_generation_keys(options: dict[str, object]) -> None:
    unknown = sorted(options.keys() - set(GENERATION_KEYS))
    if unknown:
        raise ValueError(f"gen_kwargs: {', '.join(unknown)} is not known; allowed: {', '.join(GENERATION_KEYS)}")


def sampling_of(options: Mapping[str, Any]) -> SamplingParams:
    """`options`: normalised by lm-eval. ValueError or TypeError for a value that cannot be."""
    return SamplingParams(
        max_tokens=options["max_gen_toks"],
        temperature=float(options.get("temperature", 0.0)) if options["do_sample"] else 0.0,
        top_k=int(options.get("top_k", 0) or 0),
        top_p=float(options.get("top_p", 1.0)),
    )


def find_evaluation(
    asked: EvalConfig,
    items: str,
    max_model_len: int,
    gsm8k_files: tuple[str | None, str | None] = (None, None),
    progress: Progress | None = None,
) -> EvaluationRecord:
    """Loads the tasks as the evaluation will, with their rows, before anything is measured; returns their entry in
    run.json.

    `items`: the folder of the items' raw tables, relative to run.json. `gsm8k_files`: the user's test and train rows.
    Raises ValueError for an unknown task, one without scores of items, rows that cannot be loaded, and answers longer
    than `max_model_len`.
    """
    rows = None
    if GSM8K in asked.names and GSM8K not in _tasks_in(asked.include_path):
        rows = find_rows(*gsm8k_files, progress)
    elif any(gsm8k_files):
        raise ValueError(f"gsm8k_path, fewshot_path: not used by the tasks {', '.join(asked.names)}; remove them")
    record = EvaluationRecord(
        asked=asked,
        items=items,
        lm_eval=version("lm_eval"),
        sha256=_sha256(rows, asked.include_path),
        gsm8k=rows,
        notes=rows.notes if rows else (),
    )
    with open_tasks(record) as manager:
        try:
            tasks = manager.load(asked.names)["tasks"]
        except Exception as error:  # lm-eval, datasets and the hub raise exceptions of many kinds
            raise ValueError(f"tasks: cannot load {', '.join(asked.names)}: {error}") from error
    for name, task in tasks.items():
        _check_scores(name, task)
        _check_length(name, task, asked, max_model_len)
    notes = [
        f"few-shot examples of {name} are other rows of the evaluated split, as the task specifies"
        for name, task in tasks.items()
        if _shots(task, asked) and _examples_are_asked(name, task)
    ]
    return replace(record, notes=(*record.notes, *notes))


def source_of(record: EvaluationRecord) -> str:
    """The source of the questions, for the table."""
    folder = record.asked.include_path
    parts = [record.gsm8k.source if record.gsm8k else "", f"tasks of {folder}" if folder else ""]
    return "; ".join(filter(None, parts)) or "lm-eval's own"


def check_unchanged(record: EvaluationRecord) -> None:
    """ValueError if the questions recorded in `run.json` have changed."""
    if _sha256(record.gsm8k, record.asked.include_path) != record.sha256:
        raise ValueError("resume: the questions of the evaluation have changed since; start a new one")


@contextmanager
def open_tasks(record: EvaluationRecord) -> Iterator[TaskManager]:
    """lm-eval's TaskManager with the tasks of an evaluation. ValueError for a name that it does not know."""
    from lm_eval.tasks import TaskManager

    names, folder = record.asked.names, record.asked.include_path
    with ExitStack() as stack:
        folders = [folder] if folder else []
        known = _tasks_in(folder)
        if record.gsm8k is not None:
            folders.append(str(stack.enter_context(task_folder(record.gsm8k))))
            known.add(GSM8K)
        # Reading all of lm-eval's own tasks takes ten seconds.
        manager = TaskManager(include_path=list(folders), include_defaults=not known.issuperset(names))
        for name in names:
            if name not in manager.task_index:
                raise ValueError(_unknown(name, manager.all_tasks))
        yield manager


def _check_scores(name: str, task: ConfigurableTask) -> None:
    """Arms are paired item by item, which takes one number an item: the perplexity of a text is that of all of them,
    and lm-eval gives a pair of likelihood and length for each; F1 and others have pairs, too."""
    values = list(_scored_empty(task).values())
    if task.get_config("output_type") == "loglikelihood_rolling" or values and all(map(is_pair, values)):
        raise ValueError(
            f"tasks: {name} is not allowed: its items have no scores of their own, by which arms are compared; score "
            "it with specbench-lm-eval run"
        )


def is_pair(value: object) -> bool:
    return isinstance(value, (tuple, list))


def _scored_empty(task: ConfigurableTask) -> dict[str, object]:
    """By metric, what lm-eval makes of an empty answer to the first item; empty if the task cannot score one."""
    try:
        doc, kind = next(iter(task.eval_docs)), task.get_config("output_type")
        unlikely = [(-1.0, False)] * (len(task.doc_to_choice(doc)) if kind == "multiple_choice" else 1)
        return task.process_results(doc, [""] if kind == "generate_until" else unlikely)
    except Exception:  # a task's own code, which expects an answer
        return {}


def _check_length(name: str, task: ConfigurableTask, asked: EvalConfig, max_model_len: int) -> None:
    if task.get_config("output_type") != "generate_until":
        return
    from lm_eval.models.utils import normalize_gen_kwargs
    from lm_eval.utils import simple_parse_args_string

    options = {**(task.config.generation_kwargs or {}), **simple_parse_args_string(asked.gen_kwargs or "")}
    longest = normalize_gen_kwargs(options, DEFAULT_MAX_GEN_TOKENS)["max_gen_toks"]
    if longest >= max_model_len:
        raise ValueError(
            f"max_model_len: {max_model_len} is too short for {name}, whose answers take up to {longest} tokens"
        )


def _shots(task: ConfigurableTask, asked: EvalConfig) -> int:
    default = task.config.num_fewshot
    return default or 0 if asked.num_fewshot is None or default == 0 else asked.num_fewshot  # lm-eval keeps a task's 0


def _examples_are_asked(name: str, task: ConfigurableTask) -> bool:
    """Whether examples are also evaluated rows.

    lm-eval then leaves out the evaluated row, but only if the task names that split: otherwise a question could be its
    own example, including the answer, which is refused.
    """
    config, fewshot = task.config, task.fewshot_cfg
    if fewshot.samples is not None:
        return False
    asked = config.test_split or config.validation_split
    if fewshot.split is None and (config.training_split or config.validation_split or asked) == asked:
        raise ValueError(
            f"num_fewshot: {name} has no rows for examples except the evaluated ones; give 0, or a fewshot_split"
        )
    return fewshot.split == asked


def _tasks_in(include_path: str | None) -> set[str]:
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
    """A hash of everything on disk that determines the questions."""
    digest = hashlib.sha256(sha256_of_rows(rows).encode() if rows else b"")
    if include_path is not None:
        folder = Path(include_path)
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
            digest.update(f"{path.relative_to(folder)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\0".encode())
    return digest.hexdigest()
