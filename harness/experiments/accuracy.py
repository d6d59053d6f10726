"""What `specbench accuracy` does with its options: load, score, report; keep what was generated, come what may."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer
from rich.console import Console

from specbench.harness import arms
from specbench.harness.accuracy.eval_config import EvalConfig
from specbench.harness.accuracy.evaluate import Evaluation, close_items, close_scores
from specbench.harness.accuracy.lm_eval_noise import lm_eval_noise
from specbench.harness.accuracy.task_sources import (
    TaskSources,
    check_tasks,
    evaluation_record,
    find_sources,
    stored_sources,
)
from specbench.harness.run.prepare import load_arms
from specbench.harness.run.target import Target
from specbench.harness.run_config import RunConfig
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.accuracy_table import accuracy_tables
from specbench.reports.run_report import write_reports
from specbench.reports.table import print_result
from specbench.reports.view import view_run

from .progress import RunProgress
from .run_lock import run_lock
from .run_session import EXIT_ARM_FAILED, EXIT_INTERRUPTED, check_writable

ITEMS_HERE = "."  # an evaluation's items are its run directory's own tables


def new_evaluation(
    config: RunConfig,
    asked: EvalConfig,
    gsm8k_files: tuple[str | None, str | None],
    output_dir: Path,
    label: str,
    argv: list[str],
    *,
    quiet: bool,
) -> None:
    """Scores the arms in a run directory of their own and reports. `gsm8k_files`: the user's test and train rows.

    Raises ValueError for bad input, before anything is written.
    """
    check_writable(output_dir)
    with RunProgress(quiet) as progress:
        with lm_eval_noise(is_heard=not quiet):
            sources = find_sources(asked, *gsm8k_files, progress.asset)
            notes = check_tasks(asked, sources, config.workload.max_model_len)
        target, resolved = _load(config, asked, progress)
        manifest = {
            "argv": argv,
            "config": config.to_dict(),
            "workload": {
                "name": ", ".join(asked.names),
                "rule": f"lm-eval, {asked.num_fewshot if asked.num_fewshot is not None else 'default'}-shot",
                "source": sources.source,
                "sha256": sources.sha256,
                "num_prompts": ", ".join(str(task.limit or "all") for task in asked.tasks),
            },
            "arms": [{"label": a.label, "strategy": a.strategy, "config": {}} for a in config.arms],
            "evaluation": evaluation_record(asked, sources, notes, ITEMS_HERE),
        }
        directory = RunDirectory.create(output_dir, label, manifest)
        _score(_evaluation(config, asked, sources, target, resolved, directory, progress), quiet)
    _report(directory)


def resume_evaluation(path: Path, argv: list[str], *, quiet: bool) -> None:
    """Goes on where an evaluation ended. ValueError for what is none, or where its rows or model have changed."""
    directory = RunDirectory.open(path)
    record = directory.manifest.get("evaluation")
    if record is None or record["items"] != ITEMS_HERE:
        raise ValueError(f"resume: {path} is a run, no evaluation alone; use specbench run --resume")
    config = RunConfig.from_dict(directory.manifest["config"])
    asked, sources = EvalConfig.from_dict(record["asked"]), stored_sources(record)
    with RunProgress(quiet) as progress:
        target, resolved = _load(config, asked, progress)
        evaluation = _evaluation(config, asked, sources, target, resolved, directory, progress)
        evaluation.check_same_model()
        directory.resume(argv)
        _score(evaluation, quiet)
    _report(directory)


def _load(config: RunConfig, asked: EvalConfig, progress: RunProgress) -> tuple[Target, list[arms.ResolvedArm]]:
    target, resolved = load_arms(config, progress)
    if asked.apply_chat_template and not target.tokenizer.has_chat_template:
        raise ValueError(f"apply_chat_template: {config.model} has no chat template; drop it, or use an instruct model")
    return target, resolved


def _evaluation(
    config: RunConfig,
    asked: EvalConfig,
    sources: TaskSources,
    target: Target,
    resolved: list[arms.ResolvedArm],
    directory: RunDirectory,
    progress: RunProgress,
) -> Evaluation:
    return Evaluation(
        config=config,
        asked=asked,
        sources=sources,
        target=target,
        arms=resolved,
        engine_of=lambda arm: arms.build_engine(arm, config, target.model),
        items=directory,
        scores=directory.path,
        progress=progress,
    )


def _score(evaluation: Evaluation, quiet: bool) -> None:
    """Leaves the directory closed, interrupted or complete."""
    directory = evaluation.items
    with run_lock(directory.path), lm_eval_noise(is_heard=not quiet):
        evaluation.progress.say(f"writing to {directory.path}")
        status = None
        try:
            evaluation.score_all()
        except KeyboardInterrupt:
            evaluation.progress.say("interrupted")
            status = "interrupted"
        close_items(directory, status)
        close_scores(directory, evaluation.config.arms)


def _report(directory: RunDirectory) -> None:
    """Reports and tables. Raises typer.Exit with the code that the evaluation deserves, unless that is 0."""
    write_reports(directory)
    for table in accuracy_tables(view_run(directory)):
        print_result(table, Console())
    typer.echo(f"run directory: {directory.path}")
    if directory.manifest["status"] == "interrupted":
        again = f"specbench accuracy --resume {shlex.quote(str(directory.path))}"
        typer.echo(f"specbench: interrupted; outputs are kept. Go on with: {again}", err=True)
        raise typer.Exit(EXIT_INTERRUPTED)
    if any(arm["error"] for arm in directory.manifest["arms"]):
        raise typer.Exit(EXIT_ARM_FAILED)
