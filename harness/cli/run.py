"""`specbench run`: measure strategies over a workload and print the comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specbench.harness.exit_codes import ExitCode
from specbench.harness.spec.options import RunOptions

from .derived import takes_options, typed_command

if TYPE_CHECKING:
    from specbench.harness.spec.plan import RunPlan


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
    from specbench.harness.experiments.run import by_batch_size, new_run, record_of_further_work, resume_run
    from specbench.harness.experiments.session import Output, check_writable

    from .ending import end
    from .progress import RunProgress
    from .run_output import print_batch_sizes, print_run

    if options.resume is not None:
        options.check_alone("a run")
        with RunProgress(options.quiet) as progress:
            directory = resume_run(options.resume, typed_command(), progress)
        end(print_run(directory, options.format))
        return
    plan = planned(options)
    check_writable(options.output_dir)
    with RunProgress(options.quiet) as progress:
        record = {**plan.record, **record_of_further_work(plan.config, options, progress)}
    directories, code = [], ExitCode.PASSED
    for config, name in by_batch_size(plan.config, plan.batch_sizes, options.label):
        with RunProgress(options.quiet) as progress:
            output = Output(options.output_dir, name, tuple(typed_command()))
            directory = new_run(config, record, output, progress)
        directories.append(directory)
        code = max(code, print_run(directory, options.format))
        if code == ExitCode.INTERRUPTED:
            break
    if len(plan.batch_sizes) > 1 and options.format == "table":
        print_batch_sizes(directories)
    end(code)


def planned(options: RunOptions) -> RunPlan:
    """The arms and the configuration that the options ask for. ValueError naming what is wrong and what is allowed."""
    from specbench.harness.run.prepare import arm_check
    from specbench.harness.spec.plan import plan_run
    from specbench.reports.seed_table import check_columns

    plan = plan_run(options, arm_check(options))
    if "recipe" in plan.record:
        check_columns(plan.record["recipe"]["report"]["columns"])
    return plan
