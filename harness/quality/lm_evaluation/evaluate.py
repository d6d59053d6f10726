"""An evaluation: every arm runs lm-eval on the same items; outputs are stored as they arrive, scores when an arm
ends."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from specbench.harness.engines.base import Deployment, ResolvedArm
from specbench.harness.engines.load import Load, PromptRequest
from specbench.harness.engines.warmup import WarmUp
from specbench.harness.metrics.accuracy import accuracy_figures
from specbench.harness.metrics.run_results import results
from specbench.harness.quality.lm_evaluation.quiet import lm_eval_noise
from specbench.harness.quality.lm_evaluation.store import (
    FAILURE,
    TABLE,
    ItemStore,
    Row,
    append_scores,
    pairs_of,
    read_accuracy,
    score_rows,
)
from specbench.harness.quality.lm_evaluation.tasks import open_tasks
from specbench.harness.registry import BASELINE
from specbench.harness.run.block_sink import BlockSink
from specbench.harness.run.estimate import UNKNOWN
from specbench.harness.run.interrupts import deferred_interrupt
from specbench.harness.run.machine_watch import Watcher
from specbench.harness.run.prepare import Served
from specbench.harness.run.progress import Place, Progress
from specbench.harness.run.remaining import Remaining
from specbench.harness.run.runner import ERROR_LOG, block_name, record_failure
from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.store.block_records import add_record
from specbench.harness.store.evaluation_record import EvaluationRecord
from specbench.harness.store.results import Results
from specbench.harness.store.run_directory import RunDirectory
from specbench.workloads.assets.cache import read_sha256
from specbench.workloads.base import Prompt
from specbench.workloads.guarded import first_line

if TYPE_CHECKING:
    from lm_eval.tasks import TaskManager

_BLOCK_ROUNDS = 4  # prompts of a stored block, in batches: few enough to lose little, enough to keep batches full


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """`items` has what the arms generated, `scores` is the run directory that gets `accuracy.parquet`. An arm of
    `served` that is not deployed is deployed while it is scored."""

    served: Served
    record: EvaluationRecord
    items: RunDirectory
    scores: Path
    progress: Progress

    def score_all(self) -> None:
        """Scores the arms that are not in `accuracy.parquet` yet. A failure is recorded, and the others continue."""
        check_same_model(self.items, self.served)
        self.items.put(replace(self.items.record, model=self.served.model.described))
        done, deployments = scored_arms(self.scores), self.served.deployments
        deployments.logs.keep_in(self.scores)
        if any(arm.config.label not in done for arm in self.served.arms):
            self.progress.say(UNKNOWN)
        remaining = Remaining(arm.config.label for arm in self.served.arms if arm.config.label not in done)
        with lm_eval_noise(is_heard=not self.progress.is_quiet), open_tasks(self.record) as task_manager:
            for arm in self.served.arms:
                label = arm.config.label
                if label in done:
                    self.progress.say(f"{label}: scored already")
                    continue
                self.items.describe_arm(label, config=arm.setup(), notes=arm.notes)
                was_deployed, began = label in deployments, time.monotonic()
                try:
                    self._try_arm(arm, task_manager, remaining)
                finally:
                    remaining.ended(label, time.monotonic() - began)
                    if not was_deployed:
                        deployments.drop(label)

    def _try_arm(self, arm: ResolvedArm, task_manager: TaskManager, remaining: Remaining) -> None:
        label = arm.config.label
        try:
            scored = self._score(arm, task_manager, remaining)
        except Exception as error:  # stored with the arm, shown in its row
            self.served.deployments.logs.explain(label, error)
            record_failure(self.items, label, FAILURE, error, "accuracy")
            log = self.items.path / ERROR_LOG
            self.progress.say(f"{label}: failed: {first_line(error)} (traceback: {log})")
            return
        with deferred_interrupt():
            append_scores(self.scores, scored)
            if (label, FAILURE) in self.items.failed_blocks():
                self.items.append(label, FAILURE, [])  # an earlier try's

    def _score(self, arm: ResolvedArm, task_manager: TaskManager, remaining: Remaining) -> list[Row]:
        from lm_eval import simple_evaluate

        from specbench.harness.quality.lm_evaluation.model import EngineLM

        label, asked = arm.config.label, self.record.asked
        self.progress.say(f"{label}: preparing {', '.join(asked.names)}")
        store, deployment = ItemStore(self.items, label), self.served.deployments.of(arm)

        def answer(requests: Sequence[PromptRequest]) -> dict[str, str]:
            return self._answer(arm, deployment, store, requests, remaining)

        model = EngineLM(self.served, deployment, answer)
        rows: list[Row] = []
        notes: list[str] = []
        for task in asked.tasks:
            evaluated = simple_evaluate(
                model=model,
                tasks=[task.name],
                num_fewshot=asked.num_fewshot,
                limit=task.limit,
                apply_chat_template=asked.apply_chat_template,
                gen_kwargs=asked.gen_kwargs,
                log_samples=True,
                bootstrap_iters=0,
                task_manager=task_manager,
            )
            rows += score_rows(label, evaluated, store.num_tokens())
            notes += [
                f"{name}: no {', '.join(metrics)}, of which items have no score"
                for name, metrics in pairs_of(evaluated).items()
                if metrics
            ]
        if model.num_cut:
            notes.append(f"{model.num_cut} prompts shortened at the beginning to fit")
        self.items.describe_arm(label, notes=notes)
        return rows

    def _answer(
        self,
        arm: ResolvedArm,
        deployment: Deployment,
        store: ItemStore,
        requests: Sequence[PromptRequest],
        remaining: Remaining,
    ) -> dict[str, str]:
        """The stored outputs, and those generated and stored now, batch by batch."""
        from specbench.harness.quality.lm_evaluation.model import generate_texts

        label, say = arm.config.label, self.progress.say
        model = self.served.model
        texts = store.texts(requests, model.tokenizer if model.has_token_ids else None)
        missing = [request for request in requests if request.key not in texts]
        if missing:
            say(f"{label}: warming up")
            warmed = warm_up_on_items(deployment, missing, self.served.config)
            self.items.describe_arm(label, config=arm.setup(), warmup=warmed)
        if texts:
            say(f"{label}: {len(texts)} outputs are already stored")
        if missing:
            labels = [each.config.label for each in self.served.arms]
            place = Place(label, {"arm": (labels.index(label) + 1, len(labels))}, remaining.left_s)
            self.progress.at(place)
            self.progress.start_block(block_name(place) + remaining.text(), len(missing))
        size, watcher = _BLOCK_ROUNDS * deployment.batch_size, Watcher.of(self.served)
        for start in range(0, len(missing), size):
            batch = missing[start : start + size]
            block, number = store.begin(len(batch)), store.number
            try:
                with watcher.watch() as watch:
                    texts |= generate_texts(deployment, batch, BlockSink(block, self.progress))
            finally:
                store.put(block)
            add_record(self.items.path, watch.record(label, number, 0))
        return texts


def warm_up_on_items(deployment: Deployment, requests: Sequence[PromptRequest], config: RunConfig) -> str:
    """Sends the first of `requests` until times are stable, as a run does before its blocks; nothing is stored. Returns
    the warm-up's result, for the run record."""
    sampling = requests[0].sampling
    prompts = [
        Prompt(id=r.key, token_ids=r.prompt_ids, max_tokens=r.sampling.max_tokens, text=r.text)
        for r in requests[: 2 * deployment.batch_size]
    ]
    load = Load(
        prompts=prompts,
        arrival_s=[0.0] * len(prompts),
        max_concurrency=deployment.batch_size,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        stop_token_ids=sampling.stop_token_ids,
        seed=config.seed,
    )
    warmup = WarmUp(window_s=config.warmup_window_s, max_s=config.warmup_max_s)
    deployment.warm_up(load, warmup)
    return warmup.describe()


def check_same_model(items: RunDirectory, served: Served) -> None:
    """A resumed evaluation must have the model that it started with; ValueError otherwise."""
    before = items.record.model
    if before is not None and before.sha256 != served.model.described.sha256:
        raise ValueError(f"resume: {items.path} was begun with another model; start a new evaluation")


def scored_arms(path: Path) -> set[str]:
    """Labels of the arms in `accuracy.parquet` of a run directory."""
    return set(read_accuracy(path)["arm"])


def close_items(items: RunDirectory, status: str | None = None) -> None:
    """Derives the figures of the items and closes their directory, which stays empty if no task generates."""
    with deferred_interrupt():
        items.finish(results(items.frames()), status or (None if items.failed_blocks() else "complete"))


def close_scores(directory: RunDirectory, arms: Sequence[ArmConfig]) -> None:
    """Adds the scores and the file's hash to a closed run's `run.json`. Arms are paired with the first arm without
    speculation, else with the first arm."""
    rows = read_accuracy(directory.path)
    if len(rows):
        record = directory.record
        baseline = next((arm.label for arm in arms if arm.strategy == BASELINE), arms[0].label)
        derived = replace(record.results or Results(), accuracy=accuracy_figures(rows, baseline))
        files = {**record.files, TABLE: read_sha256(directory.path / TABLE)}
        with deferred_interrupt():
            directory.put(replace(record, results=derived, files=files))
