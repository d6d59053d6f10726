"""`specbench run --accuracy`: the arms of a run are scored on the same items, after their timed blocks.

run.json records the request, so that a resumed run scores what is missing. Outputs of the items go to a run directory
of their own, so that the run's tables hold timed blocks only. Scores go to `accuracy.parquet` beside those tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench.harness.quality.lm_evaluation.evaluate import Evaluation, close_items, close_scores, scored_arms
from specbench.harness.quality.lm_evaluation.quiet import lm_eval_noise
from specbench.harness.quality.lm_evaluation.tasks import (
    check_real_text,
    check_unchanged,
    find_evaluation,
    parse_tasks,
    require_lm_eval,
)
from specbench.harness.run.prepare import PreparedRun
from specbench.harness.run.progress import Progress
from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.spec.options import RunOptions
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.evaluation_record import EvalConfig, EvaluationRecord
from specbench.harness.store.inputs_record import WorkloadRecord
from specbench.harness.store.run_directory import FILE, RunDirectory
from specbench.harness.store.run_record import RunRecord

FOLDER = "accuracy"


def parse_accuracy(options: RunOptions, arms: Sequence[ArmConfig]) -> EvalConfig | None:
    """Parses `--accuracy gsm8k:200`; None without it. ValueError for arms whose answers are meaningless."""
    num_fewshot, include_path = options.accuracy_num_fewshot, options.accuracy_include_path
    if options.accuracy is None:
        if num_fewshot is not None or include_path is not None:
            raise ValueError("accuracy: --accuracy-num-fewshot and --accuracy-include-path need --accuracy")
        return None
    if options.load_format == "dummy":
        raise ValueError("accuracy: random weights (--load-format dummy) give no answers; use a real model")
    check_real_text(arms)
    require_lm_eval()
    return EvalConfig(tasks=parse_tasks(options.accuracy), num_fewshot=num_fewshot, include_path=include_path)


def find_items(evaluation: EvalConfig, config: RunConfig, progress: Progress) -> EvaluationRecord:
    """Finds the tasks and their rows before anything is measured. Returns their entry in run.json; raises
    ValueError."""
    progress.say(f"loading {', '.join(evaluation.names)}")
    with lm_eval_noise(is_heard=not progress.is_quiet):
        return find_evaluation(evaluation, FOLDER, config.workload.max_model_len, progress=progress.asset)


def num_sent(config: RunConfig, evaluation: EvaluationRecord | None) -> int:
    """The most requests that are sent together: those of a block, or as many items as the user allows."""
    return config.num_requests if evaluation is None else config.max_concurrency


def is_missing(directory: RunDirectory, config: RunConfig) -> bool:
    """Whether the run is to be scored and an arm has no scores yet. ValueError for an evaluation without a run."""
    record = directory.record.evaluation
    if record is None:
        return False
    if record.items != FOLDER:
        raise ValueError(f"resume: {directory.path} is an evaluation; use specbench accuracy --resume {directory.path}")
    return not scored_arms(directory.path).issuperset(arm.label for arm in config.arms)


def score(run: PreparedRun, directory: RunDirectory, progress: Progress) -> None:
    """Scores the arms that have no scores yet, on the engines that were timed where they are still deployed."""
    record = directory.record.evaluation
    if record is None or not is_missing(directory, run.config):
        return
    check_unchanged(record)
    items = _items(directory, record)
    try:
        Evaluation(served=run, record=record, items=items, scores=directory.path, progress=progress).score_all()
    except KeyboardInterrupt:
        close_items(items, "interrupted")
        raise
    close_items(items)


def close(directory: RunDirectory, config: RunConfig) -> None:
    """Called after the run's own close: stores the scores and the hash of their file, if there are any."""
    if directory.record.evaluation is not None:
        close_scores(directory, config.arms)


def has_failed(directory: RunDirectory) -> bool:
    """Whether an arm could not be scored."""
    path = directory.path / FOLDER
    return (path / FILE).exists() and bool(RunDirectory.open(path).failed_blocks())


def _items(directory: RunDirectory, evaluation: EvaluationRecord) -> RunDirectory:
    """The folder of the items, created at first use: renamed into place, so that a kill leaves all of it or nothing."""
    path = directory.path / FOLDER
    if not path.exists():
        run = directory.record
        begun = RunRecord(
            argv=run.argv,
            config=run.config,
            environment=run.environment,
            git=run.git,
            workload=WorkloadRecord(
                name=", ".join(evaluation.asked.names),
                rule="items of lm-eval, not timed as the run's blocks are",
                source="see the run above",
                sha256=evaluation.sha256,
                num_prompts="see the run above",
            ),
            arms=tuple(ArmRecord(label=a.label, strategy=a.strategy, config=a.config) for a in run.arms),
        )
        RunDirectory.create(directory.path, FOLDER, begun).path.rename(path)
    return RunDirectory.open(path)
