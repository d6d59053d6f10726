"""`specbench accuracy`: task accuracy of strategies on the same items, by lm-eval."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specbench.harness.accuracy.extra import require_lm_eval

if TYPE_CHECKING:
    from specbench.harness.accuracy.evaluate import EvalConfig
    from specbench.harness.accuracy.gsm8k_task import Gsm8kRows
    from specbench.harness.measure.record import RunDirectory
    from specbench.harness.run_config import RunConfig

    from .progress import RunProgress

EXIT_ARM_FAILED = 1
EXIT_INTERRUPTED = 130


def accuracy(
    strategy: Annotated[
        list[str] | None,
        typer.Option("--strategy", "-s", help="An arm, as in `specbench run`. Repeatable. Default: no-spec and ngram."),
    ] = None,
    tasks: Annotated[str, typer.Option(help="lm-eval task names, separated by commas.")] = "gsm8k",
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

    Example:

      specbench accuracy -s no-spec -s ngram:k=4 --tasks gsm8k --num_fewshot 5 --limit 500
    """
    require_lm_eval()
    from specbench.harness.accuracy.evaluate import EvalConfig
    from specbench.harness.run_config import RunConfig, parse_arm
    from specbench.workloads.base import WorkloadRequest

    if resume is not None:
        _resume(resume, quiet)
        return
    names = tuple(name.strip() for name in tasks.split(",") if name.strip())
    asked = EvalConfig(
        tasks=names,
        num_fewshot=num_fewshot,
        limit=limit,
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
    )
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
    from specbench.harness.accuracy.evaluate import evaluation_record
    from specbench.harness.accuracy.gsm8k_task import find_rows, sha256_of_rows
    from specbench.harness.measure.record import RunDirectory

    from .progress import RunProgress
    from .run_session import check_writable

    check_writable(output_dir)
    with RunProgress(quiet) as progress:
        rows = find_rows(gsm8k_path, fewshot_path, progress.asset)
        manifest = {
            "argv": ["specbench", *sys.argv[1:]],
            "config": config.to_dict(),
            "workload": {
                "name": ", ".join(asked.tasks),
                "rule": f"lm-eval, {asked.num_fewshot if asked.num_fewshot is not None else 'default'}-shot",
                "source": rows.source,
                "sha256": sha256_of_rows(rows),
                "num_prompts": asked.limit or "all",
            },
            "arms": [{"label": a.label, "strategy": a.strategy, "config": {}} for a in config.arms],
            "evaluation": evaluation_record(asked, rows),
        }
        directory = RunDirectory.create(output_dir, label, manifest)
        _evaluate(config, asked, rows, directory, progress)
    _report(directory)


def _resume(path: Path, quiet: bool) -> None:
    """Goes on where an evaluation ended. ValueError for what is none, or where its rows or model have changed."""
    from specbench.harness.accuracy.evaluate import EvalConfig
    from specbench.harness.accuracy.gsm8k_task import Gsm8kRows, sha256_of_rows
    from specbench.harness.measure.record import RunDirectory
    from specbench.harness.run_config import RunConfig

    from .progress import RunProgress

    directory = RunDirectory.open(path)
    record = directory.manifest.get("evaluation")
    if record is None:
        raise ValueError(f"resume: {path} is no evaluation; use specbench run --resume")
    config = RunConfig.from_dict(directory.manifest["config"])
    asked = EvalConfig(**record["asked"] | {"tasks": tuple(record["asked"]["tasks"])})
    rows = Gsm8kRows(**record["gsm8k"] | {"notes": tuple(record["gsm8k"]["notes"])})
    if sha256_of_rows(rows) != directory.manifest["workload"]["sha256"]:
        raise ValueError(f"resume: the rows of {path} have changed since; start a new evaluation")
    with RunProgress(quiet) as progress:
        directory.resume(["specbench", *sys.argv[1:]])
        _evaluate(config, asked, rows, directory, progress)
    _report(directory)


def _evaluate(
    config: RunConfig, asked: EvalConfig, rows: Gsm8kRows, directory: RunDirectory, progress: RunProgress
) -> None:
    from specbench.harness.accuracy.evaluate import close, evaluate

    from .run_lock import run_lock

    baseline = next((arm.label for arm in config.arms if arm.strategy == "no-spec"), config.arms[0].label)
    with run_lock(directory.path):
        progress.say(f"writing to {directory.path}")
        status = None
        try:
            evaluate(config, asked, rows, directory, progress)
        except KeyboardInterrupt:
            progress.say("interrupted")
            status = "interrupted"
        close(directory, baseline, status)


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
