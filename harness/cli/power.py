"""`specbench power`: how small a change this machine can show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .ab import check_only_resumed, make_plan
from .run import typed_command

_WITH_RESUME = ("resume", "as_json", "quiet")


def power(
    ctx: typer.Context,
    aa: Annotated[int | None, typer.Option(help="Measure A against A in so many blocks; 10 or more tell well.")] = None,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="As in `specbench ab`; the floor holds for experiments of that kind.")
    ] = False,
    order_seed: Annotated[int, typer.Option(help="Draws which side goes first in each block.")] = 42,
    output_dir: Annotated[Path, typer.Option(help="Where run directories go.")] = Path("runs"),
    label: Annotated[str, typer.Option(help="Word in the run directory's name.")] = "power",
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with an interrupted A/A.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the floor as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Learn the noise of this machine from A/A blocks, and say what effects it can show and how many blocks they take.

    All further options are those of `specbench run`, with one arm. The floor is stored for this hardware under
    $SPECBENCH_CACHE/noise (~/.cache/specbench/noise), and `specbench ab` reads it before it starts. Without --aa the
    last stored one is shown.

    Exit code: 0 measured, 2 bad input, 4 the A/A itself is invalid (blocks rejected, or a change found where there is
    none), 130 interrupted.

    Examples:

      specbench power --aa 10 -s eagle:k=4 --dataset-name sharegpt-held-out --num-prompts 20

      specbench power
    """
    from specbench.harness.ab.noise import read_floors
    from specbench.harness.experiments.ab import new_experiment, resume_experiment
    from specbench.harness.experiments.power import check_is_aa
    from specbench.harness.experiments.session import Output
    from specbench.harness.store.environment import collect_environment

    from .ab_output import print_floor, print_learnt_floor
    from .ab_sides import configs_of
    from .ending import end
    from .progress import RunProgress

    if resume is not None:
        check_only_resumed(ctx, _WITH_RESUME)
        check_is_aa(resume)
        with RunProgress(quiet) as progress:
            directory = resume_experiment(resume, typed_command(), progress)
        end(print_learnt_floor(directory, as_json=as_json))
        return
    if aa is None:
        if ctx.args:
            raise ValueError(f"aa: {' '.join(ctx.args)} says what to measure; say in how many blocks with --aa 10")
        floors = read_floors(collect_environment())
        if not floors:
            raise ValueError("aa: nothing is stored for this hardware; measure it with --aa 10 and options of a run")
        print_floor(floors[0], as_json=as_json)
        return
    if aa < 2:
        raise ValueError(f"aa: {aa} is not allowed; must be >= 2 (10 or more tell well)")
    plan = make_plan(
        ctx.args,
        ("", ""),
        (None, None),
        num_blocks=aa,
        min_effect="1%",
        min_same_output="0%",
        order_seed=order_seed,
        in_process=in_process,
        checkout=None,
    )
    output = Output(output_dir, label, tuple(typed_command()))
    with RunProgress(quiet) as progress:
        directory = new_experiment(plan, configs_of(plan), output, progress)
    end(print_learnt_floor(directory, as_json=as_json))
