"""lm-eval's own gsm8k task over our rows: the same prompts, filters and metrics, without the hub.

lm-eval reads tasks from YAML files; the one written here includes lm-eval's own and replaces its data source.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from specbench.harness.store.evaluation_record import Gsm8kRows
from specbench.workloads.assets.cache import AssetError, Progress
from specbench.workloads.assets.resolve import ResolvedAsset, resolve
from specbench.workloads.questions import read_gsm8k

if TYPE_CHECKING:
    from datasets import Dataset

EXEMPLARS = "exemplars"  # instead of a file of few-shot rows: lm-eval's eight chain-of-thought examples
_ANSWER = re.compile(r"\s*The answer is \$?(-?[\d.,]*\d)\.?\s*$")


def find_rows(test: str | None = None, fewshot: str | None = None, progress: Progress | None = None) -> Gsm8kRows:
    """`test` and `fewshot` are the user's files; by default GSM8K's test and train splits from the resolver.

    If the train split is not available, the eight examples of Wei et al. 2022 that come with lm-eval are used, and the
    notes say so. Raises ValueError if there are no questions, or if few-shot rows are among them.
    """
    questions = resolve(test or "gsm8k", progress=progress)
    examples, notes = _fewshot(fewshot, progress)
    if not questions.source.startswith("hub:"):
        notes = (f"gsm8k test questions from {questions.source} in place of the hub's openai/gsm8k", *notes)
    rows = Gsm8kRows(
        test=str(questions.path), fewshot=examples, source=f"{questions.source}; few-shot: {examples}", notes=notes
    )
    test_questions = {row["question"] for row in read_rows(rows.test)}
    leaked = sum(row["question"] in test_questions for row in read_rows(rows.fewshot))
    if leaked:
        raise ValueError(f"fewshot: {leaked} examples of {examples} are test questions; give the train split")
    return rows


def _fewshot(given: str | None, progress: Progress | None) -> tuple[str, tuple[str, ...]]:
    try:
        train: ResolvedAsset = resolve(given or "gsm8k-train", progress=progress)
    except AssetError:
        if given:
            raise
        return EXEMPLARS, (
            "few-shot examples: the eight of Wei et al. 2022 (lm-eval's gsm8k-cot) in place of GSM8K's train "
            "split, which no source has",
        )
    replaced = () if train.source.startswith("hub:") else (f"few-shot examples from {train.source}",)
    return str(train.path), replaced


def read_rows(source: str) -> list[dict[str, str]]:
    """`question` and `answer` of every row of a file, or of the exemplars."""
    if source == EXEMPLARS:
        return _exemplars()
    return [{"question": q.text, "answer": q.reference} for q in read_gsm8k(Path(source))]


def sha256_of_rows(rows: Gsm8kRows) -> str:
    """Hash over all questions, answers and few-shot examples, in order."""
    text = json.dumps([read_rows(rows.test), read_rows(rows.fewshot)])
    return hashlib.sha256(text.encode()).hexdigest()


def _exemplars() -> list[dict[str, str]]:
    from lm_eval.tasks._yaml_loader import load_yaml

    samples = load_yaml(_lm_eval_tasks() / "gsm8k-cot.yaml")["fewshot_config"]["samples"]
    rows = []
    for sample in samples:
        answer, replaced = _ANSWER.subn(r"\n#### \1", sample["target"])
        assert replaced == 1, f"no answer in {sample['target']!r}"
        rows.append({"question": sample["question"], "answer": answer})
    return rows


def dataset(test: str, fewshot: str, **_task_metadata: object) -> dict[str, Dataset]:
    """Called by lm-eval for the task's rows: its splits `train` (few-shot examples only) and `test`."""
    from datasets import Dataset

    return {"train": Dataset.from_list(read_rows(fewshot)), "test": Dataset.from_list(read_rows(test))}


@contextmanager
def task_folder(rows: Gsm8kRows) -> Iterator[Path]:
    """A folder for lm-eval's `include_path` whose gsm8k replaces the built-in one."""
    import yaml

    settings = {
        "include": str(_lm_eval_tasks() / "gsm8k.yaml"),
        "dataset_kwargs": {"test": rows.test, "fewshot": rows.fewshot},
    }
    function = f"custom_dataset: !function {__name__}.{dataset.__name__}\n"
    with TemporaryDirectory(prefix="specbench-tasks-") as folder:
        path = Path(folder)
        (path / "gsm8k.yaml").write_text(yaml.safe_dump(settings) + function, encoding="utf-8")
        yield path


def _lm_eval_tasks() -> Path:
    import lm_eval.tasks

    return Path(str(lm_eval.tasks.__file__)).parent / "gsm8k"
