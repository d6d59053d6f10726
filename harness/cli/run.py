"""`specbench run`: measure strategies over a workload and print the comparison."""

from __future__ import annotations

from specbench.harness.spec.options import RunOptions

from .derived import takes_options, typed_command
from .ending import end


@takes_options
def run(options: RunOptions) -> None:
    """Measure strategies on the same prompts, arms interleaved, and print a comparison table.

    Every raw value goes to runs/<UTC>-<label>-<id>/ as it is measured; Ctrl-C keeps it, --resume goes on.

    Exit code: 0 all arms measured, 1 an arm failed or its graph claim is void (its row says why), 2 bad input, 130
    interrupted.

    Examples:

      specbench run --dataset-name sharegpt-held-out

      specbench run --strategy no-spec --strategy ngram:k=4 --dataset-name sharegpt --num-prompts 40

      specbench run -s no-spec -s naive-eagle:k=4,head=DIR --dataset-name gsm8k --max-concurrency 8

      specbench run -s no-spec -s eagle:k=4,head=random --load-format dummy --model llama-3.1-8b --dataset-name random
      --acceptance synthetic:3.0 --ignore-eos

      specbench run -s no-spec -s eagle:k=4 --num-prompts 40 --max-concurrency 8 --accuracy gsm8k:200

      specbench run --recipe vllm-pr-25196 --num-prompts 40

      specbench run --base vllm-before-pr-20078 --factor sync=single,none --factor drafter=padded --batch-sizes 1,8,64

      specbench run --resume runs/20260101T000000Z-run-1a2b3c4d
    """
    from specbench.harness.experiments.run import runs

    from .progress import RunProgress
    from .run_output import print_batch_sizes, print_run

    check_recipe(options)
    directories, codes = [], []
    with RunProgress(options.quiet) as progress:
        for directory in runs(options, typed_command(), progress):
            with progress.paused():
                directories.append(directory)
                codes.append(print_run(directory, options.format))
    if len(directories) > 1 and options.format == "table":
        print_batch_sizes(directories)
    end(max(codes))


def check_recipe(options: RunOptions) -> None:
    """ValueError for columns that no report has, before hours are measured for them."""
    from specbench.harness.spec.recipe_files import Recipe
    from specbench.reports.run.seed_table import check_columns

    if isinstance(options.file, Recipe):
        check_columns(options.file.report.columns)
