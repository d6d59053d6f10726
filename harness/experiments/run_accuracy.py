"""`specbench run --accuracy`: the arms of a run are scored on the same items, after their timed blocks.

Everything stands in run.json, so that a resumed run scores what is missing. What the items generated lies in a folder
of its own, a run directory too: the figures of the timed blocks are derived from the run's own tables, which never hold
it. Scores go to `accuracy.parquet` beside those tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specbench.harness.quality.lm_evaluation.eval_config import check_real_text, parse_tasks
from specbench.harness.quality.lm_evaluation.extra import require_lm_eval
from specbench.harness.store.evaluation_record import EvalConfig, EvaluationRecord

if TYPE_CHECKING:
    from specbench.harness.run.prepare import PreparedRun
    from specbench.harness.run.progress import Progress
    from specbench.harness.spec.arm import ArmConfig
    from specbench.harness.spec.options import RunOptions
    from specbench.harness.spec.run_config import RunConfig
    from specbench.harness.store.run_directory import RunDirectory

FOLDER = "accuracy"


def parse_accuracy(options: RunOptions, arms: Sequence[ArmConfig]) -> EvalConfig | None:
    """What `--accuracy gsm8k:200` asks for; None without it. ValueError for arms that cannot answer anything."""
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


def find_items(asked: EvalConfig, config: RunConfig, progress: Progress) -> EvaluationRecord:
    """Finds the tasks and their rows before anything is measured; what run.json says of them. Or ValueError."""
    from specbench.harness.quality.lm_evaluation.lm_eval_noise import lm_eval_noise
    from specbench.harness.quality.lm_evaluation.task_sources import check_tasks, evaluation_record, find_sources

    progress.say(f"loading {', '.join(asked.names)}")
    with lm_eval_noise(is_heard=not progress.is_quiet):
        sources = find_sources(asked, progress=progress.asset)
        notes = check_tasks(asked, sources, config.workload.max_model_len)
    return evaluation_record(asked, sources, notes, FOLDER)


def is_missing(directory: RunDirectory, config: RunConfig) -> bool:
    """Whether the run is to be scored and an arm has no scores yet. ValueError for an evaluation without a run."""
    record = directory.record.purpose.evaluation
    if record is None:
        return False
    if record.items != FOLDER:
        raise ValueError(f"resume: {directory.path} is an evaluation; use specbench accuracy --resume")
    from specbench.harness.quality.lm_evaluation.evaluate import scored_arms

    return not scored_arms(directory.path).issuperset(arm.label for arm in config.arms)


def score(run: PreparedRun, directory: RunDirectory, progress: Progress) -> None:
    """Scores the arms that have no scores yet, by the engines that were timed where they are still there."""
    if not is_missing(directory, run.config):
        return
    from specbench.harness.quality.lm_evaluation.evaluate import Evaluation, close_items
    from specbench.harness.quality.lm_evaluation.lm_eval_noise import lm_eval_noise
    from specbench.harness.quality.lm_evaluation.task_sources import stored_sources

    record = directory.record.purpose.evaluation
    assert record is not None
    items = _items(directory)
    evaluation = Evaluation(
        config=run.config,
        asked=record.asked,
        sources=stored_sources(record),
        engine=run.engine,
        model=run.model,
        arms=run.arms,
        deployments=run.deployments,
        items=items,
        scores=directory.path,
        progress=progress,
    )
    try:
        with lm_eval_noise(is_heard=not progress.is_quiet):
            evaluation.score_all()
    except KeyboardInterrupt:
        close_items(items, "interrupted")
        raise
    close_items(items)


def close(directory: RunDirectory, config: RunConfig) -> None:
    """After the run's own close: its scores and the hash of their file, where there are any."""
    if directory.record.purpose.evaluation is not None:
        from specbench.harness.quality.lm_evaluation.evaluate import close_scores

        close_scores(directory, config.arms)


def has_failed(directory: RunDirectory) -> bool:
    """Whether an arm could not be scored."""
    from specbench.harness.store.run_directory import FILE

    return (directory.path / FOLDER / FILE).exists() and bool(_items(directory).failed_blocks())


def _items(directory: RunDirectory) -> RunDirectory:
    """The folder of the items, made at first use: renamed into place whole, so that a kill leaves none or all of it."""
    from specbench.harness.store.arm_record import ArmRecord
    from specbench.harness.store.inputs_record import WorkloadRecord
    from specbench.harness.store.run_directory import RunDirectory
    from specbench.harness.store.run_record import RunRecord

    path = directory.path / FOLDER
    if not path.exists():
        of_run, evaluation = directory.record, directory.record.purpose.evaluation
        assert evaluation is not None
        begun = RunRecord(
            argv=of_run.argv,
            config=of_run.config,
            environment=of_run.environment,
            git=of_run.git,
            workload=WorkloadRecord(
                name=", ".join(evaluation.asked.names),
                rule="items of lm-eval, not timed as the run's blocks are",
                source="see the run above",
                sha256=evaluation.sha256,
                num_prompts="see the run above",
            ),
            arms=tuple(ArmRecord(label=a.label, strategy=a.strategy, config=a.config) for a in of_run.arms),
        )
        made = RunDirectory.create(directory.path, FOLDER, begun)
        made.path.rename(path)
    return RunDirectory.open(path)
