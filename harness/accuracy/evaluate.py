"""An evaluation: every arm through lm-eval on the same items, outputs stored as they come, scores at an arm's end."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import torch

from specbench.harness.arms import ResolvedArm, build_engine
from specbench.harness.engine.request import Request
from specbench.harness.measure.accuracy import ACCURACY_SCHEMA, accuracy_figures
from specbench.harness.measure.files import sha256_file, write_json, write_parquet
from specbench.harness.measure.metrics import results
from specbench.harness.measure.record import RunDirectory
from specbench.harness.prepare import Progress, load_arms
from specbench.harness.run_config import RunConfig
from specbench.harness.runner import ERROR_LOG, deferred_interrupt
from specbench.harness.targets import Target

from .generation import GeneratedBlock
from .gsm8k_task import Gsm8kRows, task_folder

TABLE = "accuracy.parquet"
_FAILURE = 1_000_000  # block of a failed arm, apart from those that hold outputs


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalConfig:
    """What is asked: lm-eval's task names, examples before each question, and the first `limit` items (None: all)."""

    tasks: tuple[str, ...]
    num_fewshot: int | None
    limit: int | None
    apply_chat_template: bool
    gen_kwargs: str | None = None  # as lm-eval's, `max_gen_toks=128`

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError("tasks: is empty; give lm-eval task names, such as gsm8k")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit: {self.limit} is not allowed; must be >= 1")
        if self.num_fewshot is not None and self.num_fewshot < 0:
            raise ValueError(f"num_fewshot: {self.num_fewshot} is not allowed; must be >= 0")


class RunStore:
    """Outputs of one arm in a run directory: a stored block is a batch of items."""

    def __init__(self, directory: RunDirectory, label: str, progress: Progress):
        self._directory, self._label, self._progress = directory, label, progress
        rows = directory.frames().requests
        own = rows[(rows["arm"] == label) & (rows["request_id"] >= 0)]
        self._known: dict[str, list[int]] = {
            str(key): list(ids) for key, ids in zip(own["prompt_id"], own["output_token_ids"], strict=True)
        }
        # Past every earlier block, of other tasks too: a block appended under the same number would replace it.
        self._next = int(own["repeat"].max()) + 1 if len(own) else 0

    def known(self) -> Mapping[str, Sequence[int]]:
        return self._known

    def num_tokens(self, prefix: str) -> int | None:
        """Output tokens of the item whose key starts with `prefix`."""
        return next((len(ids) for key, ids in self._known.items() if key.startswith(prefix)), None)

    def start(self, num_known: int, num_requests: int) -> None:
        if num_known:
            self._progress.say(f"{self._label}: {num_known} outputs are there already")
        if num_requests:
            self._progress.start_block(self._label, self._next, num_requests)

    def request_done(self, request: Request) -> None:
        self._progress.request_done(request)

    def put(self, block: GeneratedBlock) -> None:
        with deferred_interrupt():
            self._directory.append(self._label, self._next, block.requests, block.steps)
        self._next += 1
        self._known |= {row["prompt_id"]: row["output_token_ids"] for row in block.requests}


def evaluate(
    config: RunConfig, asked: EvalConfig, rows: Gsm8kRows, directory: RunDirectory, progress: Progress
) -> None:
    """Evaluates the arms that `accuracy.parquet` does not hold yet. An arm that fails is recorded, the others go on."""
    target, arms = load_arms(config, progress)
    check_same_model(directory, target)
    done = set(read_accuracy(directory.path)["arm"])
    for arm in arms:
        label = arm.config.label
        directory.describe_arm(label, config=arm.described(), notes=arm.notes)
        if label in done:
            progress.say(f"{label}: scored already")
            continue
        try:
            scored = _evaluate_arm(arm, config, asked, rows, target, directory, progress)
        except Exception as error:  # stored with the arm, shown in its row
            _record_failure(directory, label, error)
            progress.say(f"{label}: failed: {error} (traceback: {directory.path / ERROR_LOG})")
            continue
        finally:
            gc.collect()
        with deferred_interrupt():
            _append(directory.path, scored)
            if (label, _FAILURE) in directory.failed_blocks():
                directory.append(label, _FAILURE, [])  # an earlier try's


def check_same_model(directory: RunDirectory, target: Target) -> None:
    """The first evaluation writes the model down, a resumed one must have the same; ValueError otherwise."""
    before = directory.manifest.get("model")
    if before and before["sha256"] != target.described["sha256"]:
        raise ValueError(f"resume: {directory.path} was begun with another model; start a new evaluation")
    directory.manifest["model"] = target.described
    write_json(directory.path / "run.json", directory.manifest)


def _record_failure(directory: RunDirectory, label: str, error: Exception) -> None:
    import traceback

    with (directory.path / ERROR_LOG).open("a", encoding="utf-8") as log:
        log.write(f"{label}\n{''.join(traceback.format_exception(error))}\n")
    directory.fail_arm(label, _FAILURE, error)


def _evaluate_arm(
    arm: ResolvedArm,
    config: RunConfig,
    asked: EvalConfig,
    rows: Gsm8kRows,
    target: Target,
    directory: RunDirectory,
    progress: Progress,
) -> pd.DataFrame:
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    from .lm_eval_model import EngineLM

    label = arm.config.label
    progress.say(f"{label}: preparing")
    store = RunStore(directory, label, progress)
    with torch.inference_mode():
        engine = build_engine(arm, config, target.model)
    model = EngineLM(target, engine, seed=config.seed, store=store)
    with task_folder(rows) as folder:
        found = simple_evaluate(
            model=model,
            tasks=list(asked.tasks),
            num_fewshot=asked.num_fewshot,
            limit=asked.limit,
            apply_chat_template=asked.apply_chat_template,
            gen_kwargs=asked.gen_kwargs,
            log_samples=True,
            bootstrap_iters=0,
            # Reading all of lm-eval's own tasks takes ten seconds.
            task_manager=TaskManager(include_path=str(folder), include_defaults=set(asked.tasks) != {"gsm8k"}),
        )
    return score_rows(label, found, store)


def score_rows(label: str, found: Mapping[str, Any], store: RunStore) -> pd.DataFrame:
    """One row an item, filter and metric, from lm-eval's samples."""
    rows = []
    for task, samples in found["samples"].items():
        for sample in samples:
            text = repr(sample["resps"])
            for metric in sample["metrics"]:
                rows.append(
                    dict(
                        arm=label,
                        task=task,
                        item=sample["doc_id"],
                        filter=sample["filter"],
                        metric=metric,
                        version=str(found["versions"].get(task, "")),
                        num_fewshot=int(found["n-shot"].get(task, 0)),
                        value=float(sample[metric]),
                        output_sha256=hashlib.sha256(text.encode()).hexdigest(),
                        num_output_tokens=store.num_tokens(f"{task}/{sample['doc_id']}/"),
                    )
                )
    return pd.DataFrame(rows)


def read_accuracy(path: Path) -> pd.DataFrame:
    """The rows of a run directory's `accuracy.parquet`, none where there is no such file."""
    file = path / TABLE
    return pd.read_parquet(file) if file.exists() else ACCURACY_SCHEMA.empty_table().to_pandas()


def _append(path: Path, scored: pd.DataFrame) -> None:
    new = pa.Table.from_pandas(scored, schema=ACCURACY_SCHEMA, preserve_index=False)
    old = pa.Table.from_pandas(read_accuracy(path), schema=ACCURACY_SCHEMA, preserve_index=False)
    write_parquet(path / TABLE, pa.concat_tables([old, new]))


def close(directory: RunDirectory, baseline: str, status: str | None = None) -> None:
    """Derives all figures and closes the run."""
    with deferred_interrupt():
        rows = read_accuracy(directory.path)
        figures = results(directory.frames()) | {"accuracy": accuracy_figures(rows, baseline)}
        directory.finish(figures, status or ("complete" if len(rows) else "failed"))
        if (directory.path / TABLE).exists():
            directory.manifest["files"][TABLE] = {"sha256": sha256_file(directory.path / TABLE)}
            write_json(directory.path / "run.json", directory.manifest)


def evaluation_record(asked: EvalConfig, rows: Gsm8kRows) -> dict[str, Any]:
    """What run.json says of the evaluation beside the run's own configuration."""
    from importlib.metadata import version

    return {"asked": asdict(asked), "gsm8k": asdict(rows), "lm_eval": version("lm_eval")}
