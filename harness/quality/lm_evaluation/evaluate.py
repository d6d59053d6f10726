"""An evaluation: every arm through lm-eval on the same items, outputs stored as they come, scores at an arm's end."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from specbench.harness.engines.base import Engine, Model, ResolvedArm
from specbench.harness.engines.load import PromptRequest
from specbench.harness.metrics.accuracy import accuracy_figures
from specbench.harness.metrics.metrics import results
from specbench.harness.quality.lm_evaluation.item_store import (
    FAILURE,
    TABLE,
    Row,
    RunStore,
    append_scores,
    read_accuracy,
    score_rows,
)
from specbench.harness.quality.lm_evaluation.serving import Serving
from specbench.harness.quality.lm_evaluation.task_sources import TaskSources, open_tasks
from specbench.harness.quality.lm_evaluation.warm_items import warm_up_on_items
from specbench.harness.registry import BASELINE
from specbench.harness.run.deployments import Deployments
from specbench.harness.run.interrupts import deferred_interrupt
from specbench.harness.run.prepare import first_line
from specbench.harness.run.progress import Progress
from specbench.harness.run.runner import ERROR_LOG
from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.run_config import RunConfig
from specbench.harness.store.evaluation_record import EvalConfig
from specbench.harness.store.files import sha256_file
from specbench.harness.store.results import Results
from specbench.harness.store.run_directory import RunDirectory

if TYPE_CHECKING:
    from lm_eval.tasks import TaskManager


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """`items` holds what the arms generated, `scores` is the run directory that gets `accuracy.parquet`.

    `deployments`: those that are there are idle; an arm without one gets it for as long as it is scored.
    """

    config: RunConfig
    asked: EvalConfig
    sources: TaskSources
    engine: Engine
    model: Model
    arms: Sequence[ResolvedArm]
    deployments: Deployments
    items: RunDirectory
    scores: Path
    progress: Progress

    def score_all(self) -> None:
        """Scores the arms that `accuracy.parquet` does not hold yet. One that fails is recorded, the others go on."""
        self.check_same_model()
        self.items.put(replace(self.items.record, model=self.model.described))
        done = scored_arms(self.scores)
        with open_tasks(self.asked, self.sources) as task_manager:
            for arm in self.arms:
                label = arm.config.label
                if label in done:
                    self.progress.say(f"{label}: scored already")
                    continue
                self.items.describe_arm(label, config=arm.setup(), notes=arm.notes)
                was_there = label in self.deployments
                try:
                    self._score_or_record(arm, task_manager)
                finally:
                    if not was_there:
                        self.deployments.drop(label)

    def check_same_model(self) -> None:
        """A resumed evaluation must have the model that the first wrote down; ValueError otherwise."""
        before = self.items.record.model
        if before is not None and before.sha256 != self.model.described.sha256:
            raise ValueError(f"resume: {self.items.path} was begun with another model; start a new evaluation")

    def _score_or_record(self, arm: ResolvedArm, task_manager: TaskManager) -> None:
        label = arm.config.label
        try:
            scored = self._score(arm, task_manager)
        except Exception as error:  # stored with the arm, shown in its row
            self._record_failure(label, error)
            log = self.items.path / ERROR_LOG
            self.progress.say(f"{label}: failed: {first_line(error)} (traceback: {log})")
            return
        with deferred_interrupt():
            append_scores(self.scores, scored)
            if (label, FAILURE) in self.items.failed_blocks():
                self.items.append(label, FAILURE, [])  # an earlier try's

    def _record_failure(self, label: str, error: Exception) -> None:
        with deferred_interrupt():
            self.items.fail_arm(label, FAILURE, error)
            with (self.items.path / ERROR_LOG).open("a", encoding="utf-8") as log:
                log.write(f"{label}, accuracy\n{''.join(traceback.format_exception(error))}\n")

    def _score(self, arm: ResolvedArm, task_manager: TaskManager) -> list[Row]:
        from lm_eval import simple_evaluate

        from specbench.harness.quality.lm_evaluation.lm_eval_model import EngineLM

        label = arm.config.label
        self.progress.say(f"{label}: preparing {', '.join(self.asked.names)}")
        store = RunStore(self.items, label, self.progress)
        deployment = self.deployments.of(arm)

        def warm_up(requests: Sequence[PromptRequest]) -> None:
            self.progress.say(f"{label}: warming up")
            warmed = warm_up_on_items(deployment, requests, self.config)
            self.items.describe_arm(label, config=arm.setup(), warmup=warmed)

        serving = Serving(self.model, self.engine.capabilities(), deployment)
        max_model_len = self.config.workload.max_model_len
        model = EngineLM(serving, max_model_len, seed=self.config.seed, store=store, warm_up=warm_up)
        rows: list[Row] = []
        for task in self.asked.tasks:
            found = simple_evaluate(
                model=model,
                tasks=[task.name],
                num_fewshot=self.asked.num_fewshot,
                limit=task.limit,
                apply_chat_template=self.asked.apply_chat_template,
                gen_kwargs=self.asked.gen_kwargs,
                log_samples=True,
                bootstrap_iters=0,
                task_manager=task_manager,
            )
            rows += score_rows(label, found, store)
        if model.num_cut:
            self.items.describe_arm(label, notes=[f"{model.num_cut} prompts cut at their beginning to fit"])
        return rows


def baseline_of(arms: Sequence[ArmConfig]) -> str:
    """Whom the others are paired with: the first arm without speculation, else the first."""
    return next((arm.label for arm in arms if arm.strategy == BASELINE), arms[0].label)


def scored_arms(path: Path) -> set[str]:
    """Labels of the arms that `accuracy.parquet` of a run directory holds."""
    return set(read_accuracy(path)["arm"])


def close_items(items: RunDirectory, status: str | None = None) -> None:
    """Derives the figures of the items and closes their directory; tasks that generate nothing leave it empty."""
    with deferred_interrupt():
        items.finish(results(items.frames()), status or (None if items.failed_blocks() else "complete"))


def close_scores(directory: RunDirectory, arms: Sequence[ArmConfig]) -> None:
    """Adds the scores and the file's hash to a closed run's `run.json`."""
    rows = read_accuracy(directory.path)
    if len(rows):
        record = directory.record
        results = replace(record.results or Results(), accuracy=accuracy_figures(rows, baseline_of(arms)))
        files = {**record.files, TABLE: sha256_file(directory.path / TABLE)}
        with deferred_interrupt():
            directory.put(replace(record, results=results, files=files))
