"""An evaluation: lm-eval scores the arms on the same items; all outputs are kept, even if scoring fails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specbench.harness.exit_codes import ExitCode
from specbench.harness.quality.lm_evaluation.evaluate import Evaluation, check_same_model, close_items, close_scores
from specbench.harness.quality.lm_evaluation.quiet import lm_eval_noise
from specbench.harness.quality.lm_evaluation.tasks import (
    check_gen_kwargs,
    check_real_text,
    check_unchanged,
    find_evaluation,
    parse_tasks,
    source_of,
)
from specbench.harness.registry import ENGINES, lookup
from specbench.harness.run.prepare import Served, arm_check, serve
from specbench.harness.run.progress import Progress
from specbench.harness.spec.arm import PROGRAM_KEYS, ArmConfig, parse_arm
from specbench.harness.spec.commands import AccuracyOptions
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.spec.plan import without_program
from specbench.harness.spec.same_arms import check_different
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.evaluation_record import EvalConfig, EvaluationRecord
from specbench.harness.store.inputs_record import WorkloadRecord
from specbench.harness.store.purpose import Purpose
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import RunRecord

from .session import Session, check_writable, resume_by
from .session import exit_code as session_exit_code

RESUME = resume_by("specbench accuracy --resume")
ITEMS_HERE = "."  # an evaluation's items are its run directory's own tables


def evaluation(options: AccuracyOptions, argv: Sequence[str], progress: Progress) -> RunDirectory:
    """Runs a new evaluation or resumes one. ValueError for bad input, before anything is written."""
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
    arms = _arms(options)
    check_different(arms, options, arm_check(options))
    items = {"dataset_name": "gsm8k", "dataset_path": options.gsm8k_path, "num_prompts": options.limit or 1319}
    config = RunConfig.of_arms(options, arms, **items)
    check_real_text(arms)
    check_writable(options.output_dir)
    with _session(config, progress) as session:
        with lm_eval_noise(is_heard=not progress.is_quiet):
            files = (options.gsm8k_path, options.fewshot_path)
            record = find_evaluation(asked, ITEMS_HERE, config.workload.max_model_len, files, progress.asset)
        served = session.enter(_serve(config, asked, progress))
        begun, to = _begun(config, record, argv), options.output_dir
        directory = session.create(lambda: RunDirectory.create(to, options.label, begun), to)
        _score(served, directory, progress)
    return directory


def _arms(options: AccuracyOptions) -> list[ArmConfig]:
    programs = {key: str(value) for key in PROGRAM_KEYS if (value := getattr(options, key)) is not None}
    texts = options.strategy or lookup(ENGINES, options.engine, "engine").default_arms(has_head=False)
    arms = [without_program(parse_arm(text, programs), options) for text in texts]
    if options.apply_chat_template and any(arm.own_config.get("api") == "chat" for arm in arms):
        raise ValueError(
            "apply_chat_template: a server asked by chat (engine.api=chat) applies its own; drop one of the two"
        )
    return arms


def resume_evaluation(path: Path, argv: Sequence[str], progress: Progress) -> RunDirectory:
    """Measures what is missing from a stored evaluation. ValueError if it is not one, or its rows or model changed."""
    directory = RunDirectory.open(path)
    record = directory.record.evaluation
    if record is None or record.items != ITEMS_HERE:
        raise ValueError(f"resume: {path} is a run, not only an evaluation; use specbench run --resume {path}")
    config = directory.config_to_go_on()
    check_unchanged(record)
    with _session(config, progress) as session:
        session.reopen(directory)
        served = session.enter(_serve(config, record.asked, progress))
        check_same_model(directory, served)
        session.resume(argv)
        _score(served, directory, progress)
    return directory


def exit_code(directory: RunDirectory) -> ExitCode:
    has_failed = any(arm.error for arm in directory.record.arms)
    return session_exit_code(directory.record.status, has_failed=has_failed)


def _begun(config: RunConfig, evaluation: EvaluationRecord, argv: Sequence[str]) -> RunRecord:
    asked = evaluation.asked
    return RunRecord(
        argv=tuple(argv),
        config=config,
        workload=WorkloadRecord(
            name=", ".join(asked.names),
            rule=f"lm-eval, {asked.num_fewshot if asked.num_fewshot is not None else 'default'}-shot",
            source=source_of(evaluation),
            sha256=evaluation.sha256,
            num_prompts=", ".join(str(task.limit or "all") for task in asked.tasks),
        ),
        arms=tuple(ArmRecord(label=a.label, strategy=a.strategy) for a in config.arms),
        purpose=Purpose(evaluation=evaluation),
    )


def _serve(config: RunConfig, asked: EvalConfig, progress: Progress) -> Served:
    served = serve(config, progress)
    tokenizer = served.model.tokenizer
    if asked.apply_chat_template and (tokenizer is None or not tokenizer.has_chat_template):
        raise ValueError(f"apply_chat_template: {config.model} has no chat template; drop it, or use an instruct model")
    return served


def _score(served: Served, directory: RunDirectory, progress: Progress) -> None:
    record = directory.record.evaluation
    assert record is not None
    Evaluation(served=served, record=record, items=directory, scores=directory.path, progress=progress).score_all()


def _session(config: RunConfig, progress: Progress) -> Session[RunDirectory]:
    def close(directory: RunDirectory, status: str | None) -> None:
        close_items(directory, status)
        close_scores(directory, config.arms)

    return Session(progress, RESUME, close)
