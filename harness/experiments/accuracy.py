"""An evaluation: the arms scored on the same items by lm-eval; what was generated is kept, come what may."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from specbench.harness.engines.base import Engine, Model, ResolvedArm
from specbench.harness.engines.table import open_engine
from specbench.harness.exit_codes import ExitCode
from specbench.harness.quality.lm_evaluation.eval_config import check_real_text, parse_tasks
from specbench.harness.quality.lm_evaluation.evaluate import Evaluation, close_items, close_scores
from specbench.harness.quality.lm_evaluation.gen_kwargs import check_gen_kwargs
from specbench.harness.quality.lm_evaluation.lm_eval_noise import lm_eval_noise
from specbench.harness.quality.lm_evaluation.task_sources import (
    TaskSources,
    check_tasks,
    evaluation_record,
    find_sources,
    stored_sources,
)
from specbench.harness.registry import default_arms
from specbench.harness.run.deployments import Deployments
from specbench.harness.run.progress import Progress
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.commands import AccuracyOptions
from specbench.harness.spec.run_config import RunConfig
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.evaluation_record import EvalConfig, EvaluationRecord
from specbench.harness.store.inputs_record import WorkloadRecord
from specbench.harness.store.purpose import Purpose
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import RunRecord

from . import session
from .session import Destination, Session, check_writable, resume_by

RESUME = resume_by("specbench accuracy --resume")
ITEMS_HERE = "."  # an evaluation's items are its run directory's own tables


def evaluation(options: AccuracyOptions, argv: Sequence[str], progress: Progress) -> RunDirectory:
    """A new evaluation, or one that goes on. ValueError for bad input, before anything is written."""
    if options.resume is not None:
        options.check_alone("an evaluation")
        return resume_evaluation(options.resume, argv, progress)
    check_gen_kwargs(options.gen_kwargs)
    asked = EvalConfig(
        tasks=parse_tasks(options.tasks, options.limit),
        num_fewshot=options.num_fewshot,
        include_path=options.include_path,
        apply_chat_template=options.apply_chat_template,
        gen_kwargs=options.gen_kwargs,
    )
    arms = [parse_arm(text) for text in options.strategy or default_arms(has_head=False)]
    items = {"dataset_name": "gsm8k", "dataset_path": options.gsm8k_path, "num_prompts": options.limit or 1319}
    config = RunConfig.of_arms(options, arms, **items)
    check_real_text(config.arms)
    files = (options.gsm8k_path, options.fewshot_path)
    return new_evaluation(config, asked, files, Destination.of(options, argv), progress)


def new_evaluation(
    config: RunConfig,
    asked: EvalConfig,
    gsm8k_files: tuple[str | None, str | None],
    to: Destination,
    progress: Progress,
) -> RunDirectory:
    """Scores the arms in a run directory of their own. `gsm8k_files`: the user's test and train rows.

    Raises ValueError for bad input, before anything is written.
    """
    check_writable(to.folder)
    with Session(progress, RESUME, _closing(config)) as held:
        with lm_eval_noise(is_heard=not progress.is_quiet):
            sources = find_sources(asked, *gsm8k_files, progress.asset)
            notes = check_tasks(asked, sources, config.workload.max_model_len)
        served = _load(config, asked, progress)
        evaluation = evaluation_record(asked, sources, notes, ITEMS_HERE)
        begun = _begun(config, evaluation, sources.source, to.argv)
        directory = held.create(lambda: RunDirectory.create(to.folder, to.label, begun), to.folder)
        _score(_evaluation(config, asked, sources, served, directory, progress))
    return directory


def resume_evaluation(path: Path, argv: Sequence[str], progress: Progress) -> RunDirectory:
    """Goes on where an evaluation ended. ValueError for what is not one, or where its rows or model have changed."""
    directory = RunDirectory.open(path)
    record = directory.record.purpose.evaluation
    if record is None or record.items != ITEMS_HERE:
        raise ValueError(f"resume: {path} is a run, no evaluation alone; use specbench run --resume")
    config, asked, sources = directory.config_to_go_on(), record.asked, stored_sources(record)
    with Session(progress, RESUME, _closing(config)) as held:
        held.reopen(directory)
        served = _load(config, asked, progress)
        evaluation = _evaluation(config, asked, sources, served, directory, progress)
        evaluation.check_same_model()
        held.go_on(argv)
        _score(evaluation)
    return directory


def exit_code(directory: RunDirectory) -> ExitCode:
    has_failed = any(arm.error for arm in directory.record.arms)
    return session.exit_code(directory.record.status, has_failed=has_failed)


def _begun(config: RunConfig, evaluation: EvaluationRecord, source: str, argv: Sequence[str]) -> RunRecord:
    asked = evaluation.asked
    return RunRecord(
        argv=tuple(argv),
        config=config,
        workload=WorkloadRecord(
            name=", ".join(asked.names),
            rule=f"lm-eval, {asked.num_fewshot if asked.num_fewshot is not None else 'default'}-shot",
            source=source,
            sha256=evaluation.sha256,
            num_prompts=", ".join(str(task.limit or "all") for task in asked.tasks),
        ),
        arms=tuple(ArmRecord(label=a.label, strategy=a.strategy) for a in config.arms),
        purpose=Purpose(evaluation=evaluation),
    )


_Served = tuple[Engine, Model, list[ResolvedArm]]


def _load(config: RunConfig, asked: EvalConfig, progress: Progress) -> _Served:
    engine = open_engine(config.engine)
    model, resolved = engine.open(config, progress)
    if asked.apply_chat_template and (model.tokenizer is None or not model.tokenizer.has_chat_template):
        raise ValueError(f"apply_chat_template: {config.model} has no chat template; drop it, or use an instruct model")
    return engine, model, resolved


def _evaluation(
    config: RunConfig,
    asked: EvalConfig,
    sources: TaskSources,
    served: _Served,
    directory: RunDirectory,
    progress: Progress,
) -> Evaluation:
    engine, model, resolved = served
    return Evaluation(
        config=config,
        asked=asked,
        sources=sources,
        engine=engine,
        model=model,
        arms=resolved,
        deployments=Deployments(engine, config),
        items=directory,
        scores=directory.path,
        progress=progress,
    )


def _score(evaluation: Evaluation) -> None:
    with lm_eval_noise(is_heard=not evaluation.progress.is_quiet):
        evaluation.score_all()


def _closing(config: RunConfig) -> Callable[[RunDirectory, str | None], None]:
    def close(directory: RunDirectory, status: str | None) -> None:
        close_items(directory, status)
        close_scores(directory, config.arms)

    return close
