"""`specbench accuracy`: task accuracy of strategies on the same items, by lm-eval."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specbench.harness.accuracy.extra import require_lm_eval

from .gen_kwargs import check_gen_kwargs
from .run_plan import check_alone

if TYPE_CHECKING:
    from specbench.harness.accuracy.eval_config import EvalConfig
    from specbench.harness.accuracy.evaluate import Evaluation
    from specbench.harness.accuracy.task_sources import TaskSources
    from specbench.harness.arms import ResolvedArm
    from specbench.harness.measure.record import RunDirectory
    from specbench.harness.run_config import RunConfig
    from specbench.harness.targets import Target

    from .progress import RunProgress

ITEMS_HERE = "."  # an evaluation's items are its run directory's own tables
EXIT_ARM_FAILED = 1
EXIT_INTERRUPTED = 130


def accuracy(
    ctx: typer.Context,
    strategy: Annotated[
        list[str] | None,
        typer.Option("--strategy", "-s", help="An arm, as in `specbench run`. Repeatable. Default: no-spec and ngram."),
    ] = None,
    tasks: Annotated[
        str, typer.Option(help="lm-eval task names, separated by commas; NAME:LIMIT for a limit of its own.")
    ] = "gsm8k",
    num_fewshot: Annotated[
        int | None, typer.Option("--num-fewshot", "--num_fewshot", help="Examples before each question.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="The first items of each task only.")] = None,
    apply_chat_template: Annotated[
        bool, typer.Option("--apply-chat-template", "--apply_chat_template", help="Ask through the chat template.")
    ] = False,
    gen_kwargs: Annotated[
        str | None, typer.Option("--gen-kwargs", "--gen_kwargs", help="Over the task's own, as max_gen_toks=128.")
    ] = None,
    include_path: Annotated[
        str | None, typer.Option("--include-path", "--include_path", help="A folder of further lm-eval tasks.")
    ] = None,
    gsm8k_path: Annotated[str | None, typer.Option(help="Your file of GSM8K test rows.")] = None,
    fewshot_path: Annotated[str | None, typer.Option(help="Your file of GSM8K train rows for the examples.")] = None,
    model: Annotated[str, typer.Option(help="Asset name, hub name, Hugging Face directory or .gguf.")] = (
        "smollm2-135m-instruct"
    ),
    dtype: Annotated[str, typer.Option(help="auto, bfloat16 or float32.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    max_concurrency: Annotated[
        int, typer.Option("--max-concurrency", "--batch-size", "--batch_size", help="Requests in flight at once.")
    ] = 8,
    max_model_len: Annotated[int, typer.Option(help="Most tokens of a request, prompt and output.")] = 2048,
    seed: Annotated[int, typer.Option(help="Noise of sampled decoding.")] = 42,
    warmup_max_s: Annotated[
        float, typer.Option(help="Longest warm-up of an arm before its items; it ends earlier once rounds are stable.")
    ] = 8.0,
    output_dir: Annotated[Path, typer.Option(help="Where run directories go.")] = Path("runs"),
    label: Annotated[str, typer.Option(help="Word in the run directory's name.")] = "accuracy",
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with an interrupted evaluation, with its own options.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Score every arm on the same items with lm-eval, and compare the arms item by item.

    Outputs go to runs/<UTC>-<label>-<id>/ as they come; Ctrl-C keeps them, --resume goes on.

    Exit code: 0 all arms scored, 1 an arm failed, 2 bad input, 130 interrupted.

    Examples:

      specbench accuracy -s no-spec -s ngram:k=4 --tasks gsm8k --num_fewshot 5 --limit 500

      specbench accuracy -s no-spec -s eagle:k=4 --tasks gsm8k:200,my_task:50 --include-path my-tasks/
    """
    require_lm_eval()
    from specbench.harness.accuracy.eval_config import EvalConfig, check_real_text, parse_tasks
    from specbench.harness.run_config import RunConfig, parse_arm
    from specbench.workloads.base import WorkloadRequest

    if resume is not None:
        check_alone(ctx, ("resume", "quiet"), "an evaluation")
        _resume(resume, quiet)
        return
    check_gen_kwargs(gen_kwargs)
    asked = EvalConfig(
        tasks=parse_tasks(tasks, limit),
        num_fewshot=num_fewshot,
        include_path=include_path,
        apply_chat_template=apply_chat_template,
        gen_kwargs=gen_kwargs,
    )
    config = RunConfig(
        arms=tuple(parse_arm(text, {}) for text in strategy or ["no-spec", "ngram"]),
        workload=WorkloadRequest(name="gsm8k", path=gsm8k_path, num_prompts=limit or 1319, max_model_len=max_model_len),
        model=model,
        dtype=dtype,
        device=device,
        max_concurrency=max_concurrency,
        seed=seed,
        num_repeats=1,
        warmup_max_s=warmup_max_s,
    )
    check_real_text(config.arms)
    _start(config, asked, gsm8k_path, fewshot_path, output_dir, label, quiet)


def _start(
    config: RunConfig,
    asked: EvalConfig,
    gsm8k_path: str | None,
    fewshot_path: str | None,
    output_dir: Path,
    label: str,
    quiet: bool,
) -> None:
    from specbench.harness.accuracy.task_sources import check_tasks, evaluation_record, find_sources
    from specbench.harness.measure.record import RunDirectory

    from .progress import RunProgress
    from .run_session import check_writable

    check_writable(output_dir)
    with RunProgress(quiet) as progress:
        sources = find_sources(asked, gsm8k_path, fewshot_path, progress.asset)
        notes = check_tasks(asked, sources, config.workload.max_model_len)
        target, arms = _load(config, asked, progress)
        manifest = {
            "argv": ["specbench", *sys.argv[1:]],
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
        evaluation = _evaluation(config, asked, sources, target, arms, directory, progress)
        _evaluate(evaluation, directory)
    _report(directory)


def _resume(path: Path, quiet: bool) -> None:
    """Goes on where an evaluation ended. ValueError for what is none, or where its rows or model have changed."""
    from specbench.harness.accuracy.eval_config import EvalConfig
    from specbench.harness.accuracy.task_sources import stored_sources
    from specbench.harness.measure.record import RunDirectory
    from specbench.harness.run_config import RunConfig

    from .progress import RunProgress

    directory = RunDirectory.open(path)
    record = directory.manifest.get("evaluation")
    if record is None or record["items"] != ITEMS_HERE:
        raise ValueError(f"resume: {path} is a run, no evaluation alone; use specbench run --resume")
    config = RunConfig.from_dict(directory.manifest["config"])
    asked, sources = EvalConfig.from_dict(record["asked"]), stored_sources(record)
    with RunProgress(quiet) as progress:
        target, arms = _load(config, asked, progress)
        evaluation = _evaluation(config, asked, sources, target, arms, directory, progress)
        evaluation.check_same_model()
        directory.resume(["specbench", *sys.argv[1:]])
        _evaluate(evaluation, directory)
    _report(directory)


def _load(config: RunConfig, asked: EvalConfig, progress: RunProgress) -> tuple[Target, list[ResolvedArm]]:
    from specbench.harness.prepare import load_arms

    target, arms = load_arms(config, progress)
    if asked.apply_chat_template and not target.tokenizer.has_chat_template:
        raise ValueError(f"apply_chat_template: {config.model} has no chat template; drop it, or use an instruct model")
    return target, arms


def _evaluation(
    config: RunConfig,
    asked: EvalConfig,
    sources: TaskSources,
    target: Target,
    arms: list[ResolvedArm],
    directory: RunDirectory,
    progress: RunProgress,
) -> Evaluation:
    from specbench.harness.accuracy.evaluate import Evaluation
    from specbench.harness.arms import build_engine

    return Evaluation(
        config=config,
        asked=asked,
        sources=sources,
        target=target,
        arms=arms,
        engine_of=lambda arm: build_engine(arm, config, target.model),
        items=directory,
        scores=directory.path,
        progress=progress,
    )


def _evaluate(evaluation: Evaluation, directory: RunDirectory) -> None:
    from specbench.harness.accuracy.evaluate import close_items, close_scores

    from .run_lock import run_lock

    with run_lock(directory.path):
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
    from rich.console import Console

    from specbench.reports.accuracy_table import accuracy_tables
    from specbench.reports.run_report import write_reports
    from specbench.reports.table import print_result
    from specbench.reports.view import view_run

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
