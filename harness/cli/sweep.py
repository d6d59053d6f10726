"""`specbench sweep`: strategies and numbers of drafts over loads; at which load does each stop paying?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .like_run import like_run

if TYPE_CHECKING:
    from specbench.harness.sweep.grid import Grid

_WITH_RESUME = ("resume", "as_json", "quiet")
_LEAST_LOADS = 2  # one makes no curve


@like_run(
    without=(
        *("strategy", "recipe", "base", "factor", "batch_sizes", "max_concurrency", "request_rate", "burstiness"),
        *("output_dir", "label", "resume", "as_json", "quiet"),
    ),
    defaults={},
)
def sweep(
    ctx: typer.Context,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            "-s",
            help="A strategy, as in `specbench run`; with k=... it is measured at this number of drafts only. "
            "Repeatable. no-spec is added. Default: those of `run`.",
            rich_help_panel="The sweep",
        ),
    ] = None,
    num_drafts: Annotated[
        str,
        typer.Option(
            help="Drafts a round (k) of every strategy that does not say its own, as 1,2,4.",
            rich_help_panel="The sweep",
        ),
    ] = "1,2,4",
    loads: Annotated[
        str,
        typer.Option(
            "--max-concurrency",
            "--batch-sizes",
            help="Requests in flight at once: each is a run of its own with all arms interleaved.",
            rich_help_panel="The sweep",
        ),
    ] = "1,4,16",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the points and the arms, and measure nothing.")
    ] = False,
    output_dir: Annotated[Path, typer.Option(help="Where the sweep's directory goes.")] = Path("runs"),
    label: Annotated[str, typer.Option(help="Word in the directory's name.")] = "sweep",
    resume: Annotated[
        Path | None, typer.Option(metavar="SWEEP", help="Go on with an interrupted sweep, with its own options.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print crossover.json on stdout instead of tables.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
    **of_run: Any,
) -> None:
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
    from specbench.harness.experiments.run_accuracy import parse_accuracy
    from specbench.harness.experiments.session import Output
    from specbench.harness.experiments.sweep import new_sweep, resume_sweep
    from specbench.harness.sweep.grid import parse_numbers

    from .ending import end
    from .progress import RunProgress
    from .run import typed_command
    from .run_options import run_config
    from .run_plan import check_alone
    from .sweep_output import print_plan, print_sweep, report_point

    if resume is not None:
        check_alone(ctx, _WITH_RESUME, "a sweep")
        with RunProgress(quiet) as progress:
            found = resume_sweep(resume, typed_command(), progress, report_point)
        end(print_sweep(found, as_json=as_json))
        return
    asked = parse_numbers("max_concurrency", loads, "1,4,16")
    if len(asked) < _LEAST_LOADS:
        raise ValueError(f"max_concurrency: {loads!r} is one load, which makes no curve; give two or more, as 1,4,16")
    if of_run["num_prompts"] < asked[-1]:
        raise ValueError(
            f"num_prompts: {of_run['num_prompts']} prompts never keep {asked[-1]} requests in flight; give "
            f"--num-prompts {asked[-1]} or more (twice as many fill the batch for longer), or lower --max-concurrency"
        )
    grid, record = _grid(ctx, strategy, parse_numbers("num_drafts", num_drafts, "1,2,4"))
    config = run_config(ctx, grid.arms)
    tasks, num_fewshot, include_path = (of_run[f"accuracy{name}"] for name in ("", "_num_fewshot", "_include_path"))
    scored = parse_accuracy(tasks, num_fewshot, include_path, of_run["load_format"], config.arms)
    with RunProgress(quiet) as progress:
        record |= record_of_further_work(config, of_run["certify_graphs"], scored, progress)
    if dry_run:
        print_plan(grid, asked, config, as_json=as_json)
        return
    output = Output(output_dir, label, tuple(typed_command()))
    with RunProgress(quiet) as progress:
        found = new_sweep(config, asked, grid, record, output, progress, report_point)
    end(print_sweep(found, as_json=as_json))


def _grid(ctx: typer.Context, strategies: list[str] | None, num_drafts: list[int]) -> tuple[Grid, dict[str, Any]]:
    """The arms, and what run.json says of them beside that."""
    from specbench.harness.run.target import pick_device
    from specbench.harness.run_config import ArmConfig
    from specbench.harness.sweep.grid import make_grid

    from .run import with_head
    from .run_plan import default_strategies, plain_plan

    given = ctx.params
    record: dict[str, Any] = {}

    def make(text: str) -> ArmConfig:
        plan = plain_plan(ctx, [with_head(text, given["head"])])
        record.update(plan.record)
        return plan.arms[0]

    defaults = [text.partition(":")[0] for text in default_strategies(given["model"], given["load_format"])]
    device = pick_device(given["device"]).type
    grid = make_grid(strategies or defaults, num_drafts, make, device, given["load_format"] == "dummy")
    return grid, record
