"""`specbench run`: measure strategies over a workload and print the comparison."""

from __future__ import annotations

import os
import shlex

import typer

from specbench.harness.spec.options import RunOptions

from .derived import takes_options, typed_command
from .output import end, print_tables, print_view, print_where, say_if_interrupted


@takes_options
def run(options: RunOptions) -> None:
    """Measure strategies on the same prompts, arms interleaved, and print a comparison table.

    Every raw value is stored in runs/<UTC>-<label>-<id>/ as it is measured; after Ctrl-C, --resume continues.

    Exit code: 0 all arms measured, 1 an arm failed or its graph claim is void (its row says why), 2 bad input, 130
    interrupted.

    No option is required: the default model, prompts and arms show how fast speculation is here. Most runs set their
    arms (-s), prompts (--dataset-name, --num-prompts) and load (--max-concurrency).

    Examples:

      specbench run

      specbench run -s no-spec -s eagle:k=4 --num-prompts 40 --max-concurrency 8

      specbench run -s no-spec -s ngram:k=4 --dataset-name jsonl --dataset-path mine.jsonl --num-prompts 8

      specbench run -s no-spec -s eagle:k=4,head=random --load-format dummy --model llama-3.1-8b --dataset-name random
      --acceptance synthetic:3.0 --ignore-eos

      specbench run -s no-spec -s eagle:k=4 --num-prompts 40 --max-concurrency 8 --accuracy gsm8k:200

      specbench run --recipe vllm-pr-25196 --num-prompts 40

      specbench run --base vllm-0.9 --ablate sync=single,none --ablate drafter=padded --batch-sizes 1,8,16

      specbench run --resume runs/20260101T000000Z-run-1a2b3c4d
    """
    from specbench.harness.experiments.run import RESUME, ROWS_ALONE, exit_code, runs

    from .progress import open_progress

    check_recipe(options)
    if os.environ.get(ROWS_ALONE):
        with open_progress(options, "run") as progress:
            return end(max(exit_code(directory) for directory in runs(options, typed_command(), progress)))
    from specbench.reports.run.ablation_table import ablation_table
    from specbench.reports.run.report import write_reports
    from specbench.reports.run.view import view_run

    views, codes = [], []
    with open_progress(options, "run") as progress:
        for directory in runs(options, typed_command(), progress):
            with progress.paused():
                write_reports(directory, options.slos)
                views.append(view_run(directory, options.slos))
                codes.append(exit_code(directory))
                print_view(views[-1], options.format)
                if options.format != "json":
                    print_where(directory.path)
                say_if_interrupted(directory.record.status, directory.path, RESUME)
    joined = ablation_table(views) if len(views) > 1 and options.format != "json" else None
    if joined is not None:
        print_tables(joined)
    if not_started := ",".join(map(str, options.sizes[len(views) :])):  # interrupted before these
        again = shlex.join([*typed_command(), "--batch-sizes", not_started])
        typer.echo(f"specbench: not started: concurrency {not_started}. Measure with: {again}", err=True)
    end(max(codes))


def check_recipe(options: RunOptions) -> None:
    """ValueError for columns that no report has, before hours of measurement."""
    from specbench.harness.spec.recipe_files import Recipe
    from specbench.reports.run.recipe_table import check_columns

    if isinstance(options.file, Recipe):
        check_columns(options.file.report.columns)
