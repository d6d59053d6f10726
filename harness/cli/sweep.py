"""`specbench sweep`: strategies and numbers of drafts over loads, and the break-even concurrency of each."""

from __future__ import annotations

from specbench.harness.spec.commands import SweepOptions

from .derived import takes_options, typed_command
from .output import end


@takes_options
def sweep(options: SweepOptions) -> None:
    """Measure each strategy at several numbers of drafts and loads, and find the break-even concurrency.

    Every load is a run with all arms interleaved on the same prompts, so that each speed-up is within one run. The
    results are: the speed-up of TPOT and of TPS over no-spec by load, the concurrency at which it falls below 1 with a
    95% interval (hierarchical bootstrap over blocks and prompts; "beyond 16" if it never does), the best number of
    drafts at each load, and what the machine's limits allow (roofline). An arm that is refused or does not fit gets a
    row with the reason.

    The sweep is stored in runs/<UTC>-<label>-<id>/: sweep.json, a run for each load, crossover.json, crossover.md,
    plots, and draft_table.json, which `k=auto` uses to choose the number of drafts. After Ctrl-C, --resume continues;
    `specbench show SWEEP` prints it again.

    Exit code: 0 all arms measured, 1 an arm failed (its row says why), 2 bad input, 130 interrupted.

    Examples:

      specbench sweep -s eagle -s ngram --num-drafts 1,2,4 --max-concurrency 1,2,4,8 --num-prompts 16

      specbench sweep -s eagle -s ngram:k=8 --max-concurrency 1,8,64 --num-prompts 128 --dry-run

      specbench sweep -s naive-eagle:head=random --load-format dummy --model llama-3.1-8b --dataset-name random
      --acceptance measured:sharegpt --ignore-eos --max-concurrency 1,4,16,64,256 --num-prompts 1024

      specbench sweep --resume runs/20260101T000000Z-sweep-1a2b3c4d
    """
    from specbench.harness.experiments.sweep import plan_sweep, sweep

    from .progress import open_progress
    from .sweep_output import print_plan, print_sweep, report_point

    with open_progress(options, "sweep") as progress:
        if not options.dry_run or options.resume is not None:  # which refuses --dry-run
            found = sweep(options, typed_command(), progress, report_point)
        else:
            plan = plan_sweep(options, progress)
    if options.dry_run:
        print_plan(plan, options.format)
    else:
        end(print_sweep(found, options.format, options.slos))
