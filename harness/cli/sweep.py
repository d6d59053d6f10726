"""`specbench sweep`: strategies and numbers of drafts over loads; at which load does each stop paying?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specbench.harness.spec.commands import SweepOptions

from .derived import takes_options, typed_command

if TYPE_CHECKING:
    from specbench.harness.spec.grid import Grid

_LEAST_LOADS = 2  # one makes no curve


@takes_options
def sweep(options: SweepOptions) -> None:
    """Measure strategies times numbers of drafts at several loads, and say where each stops paying against no-spec.

    Every load is a run with all arms interleaved on the same prompts, so that each speed-up is within one run. From
    them: the speed-up of TPOT and of TPS by load, the load at which it falls below 1 with a 95% interval (hierarchical
    bootstrap over blocks and prompts; "beyond 16" where it was not met), the best number of drafts at each load, and
    what the machine's limits would allow (roofline). An arm that is not legal or does not fit is a row with its reason.

    The sweep goes to runs/<UTC>-<label>-<id>/: sweep.json, a run for each load, crossover.json, crossover.md, plots.
    Ctrl-C keeps what was measured, --resume goes on; `specbench show SWEEP` prints it again.

    Exit code: 0 all arms measured, 1 an arm failed (its row says why), 2 bad input, 130 interrupted.

    Examples:

      specbench sweep -s eagle -s ngram --num-drafts 1,2,4 --max-concurrency 1,2,4,8 --num-prompts 16

      specbench sweep -s eagle -s ngram:k=8 --max-concurrency 1,8,64 --dry-run

      specbench sweep -s naive-eagle:head=random --load-format dummy --model llama-3.1-8b --dataset-name random
      --acceptance measured:sharegpt --ignore-eos --max-concurrency 1,4,16,64,256 --num-prompts 1024

      specbench sweep --resume runs/20260101T000000Z-sweep-1a2b3c4d
    """
    from specbench.harness.experiments.run import record_of_further_work
    from specbench.harness.experiments.session import Output
    from specbench.harness.experiments.sweep import new_sweep, resume_sweep
    from specbench.harness.spec.options import parse_numbers
    from specbench.harness.spec.plan import acceptance_record, plan_config

    from .ending import end
    from .progress import RunProgress
    from .sweep_output import print_plan, print_sweep, report_point

    if options.resume is not None:
        options.check_alone("a sweep")
        with RunProgress(options.quiet) as progress:
            found = resume_sweep(options.resume, typed_command(), progress, report_point)
        end(print_sweep(found, options.format))
        return
    loads = parse_numbers("max_concurrency", options.loads, "1,4,16")
    if len(loads) < _LEAST_LOADS:
        raise ValueError(
            f"max_concurrency: {options.loads!r} is one load, which makes no curve; give two or more, as 1,4,16"
        )
    if options.num_prompts < loads[-1]:
        raise ValueError(
            f"num_prompts: {options.num_prompts} prompts never keep {loads[-1]} requests in flight; give --num-prompts "
            f"{loads[-1]} or more (twice as many fill the batch for longer), or lower --max-concurrency"
        )
    grid = _grid(options)
    config = plan_config(options, grid.arms)
    with RunProgress(options.quiet) as progress:
        record = {**acceptance_record(options), **record_of_further_work(config, options, progress)}
    if options.dry_run:
        print_plan(grid, loads, config, options.format)
        return
    output = Output(options.output_dir, options.label, tuple(typed_command()))
    with RunProgress(options.quiet) as progress:
        found = new_sweep(config, loads, grid, record, output, progress, report_point)
    end(print_sweep(found, options.format))


def _grid(options: SweepOptions) -> Grid:
    """The arms under the options' switches, and what cannot run. ValueError for an argument of which nothing can."""
    from specbench.harness.run.prepare import arm_check
    from specbench.harness.spec.grid import make_grid
    from specbench.harness.spec.options import parse_numbers
    from specbench.harness.spec.plan import default_strategies, named_arm

    texts = options.strategy or [text.partition(":")[0] for text in default_strategies(options)]
    num_drafts = parse_numbers("num_drafts", options.num_drafts, "1,2,4")
    return make_grid(texts, num_drafts, lambda text: named_arm(text, options), arm_check(options))
