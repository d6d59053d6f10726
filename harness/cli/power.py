"""`specbench power`: how small a change this machine can show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from .ab import finish_directory, make_plan, stop_if_interrupted
from .run import typed_command
from .run_plan import is_typed

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
    from specbench.harness.store.environment import collect_environment

    from .ab_session import new_experiment, resume_experiment

    if resume is not None:
        given = ["--" + n.replace("_", "-") for n in ctx.params if n not in _WITH_RESUME and is_typed(ctx, n)]
        if given or ctx.args:
            raise ValueError(
                f"resume: an experiment goes on with its own options; drop {' '.join([*given, *ctx.args])}"
            )
        _check_is_aa(resume)
        _floor_of(finish_directory(lambda: resume_experiment(resume, typed_command(), quiet=quiet)), as_json)
        return
    if aa is None:
        if ctx.args:
            raise ValueError(f"aa: {' '.join(ctx.args)} says what to measure; say in how many blocks with --aa 10")
        floors = read_floors(collect_environment())
        if not floors:
            raise ValueError("aa: nothing is stored for this hardware; measure it with --aa 10 and options of a run")
        _print(floors[0], as_json)
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
    _floor_of(finish_directory(lambda: new_experiment(plan, output_dir, label, typed_command(), quiet=quiet)), as_json)


def _check_is_aa(path: Path) -> None:
    """ValueError before hours are measured that are no A/A: the sides are known to be the same, or asked to be."""
    from specbench.harness.ab.plan import MANIFEST_KEY, AbPlan
    from specbench.harness.store.run_directory import RunDirectory

    directory = RunDirectory.open(path)
    stored = directory.manifest.get(MANIFEST_KEY)
    if stored is None:
        raise ValueError(f"resume: {directory.path} is not an A/A run; go on with: specbench run --resume")
    a, b = AbPlan.from_dict(stored["plan"]).sides
    if not stored.get("is_aa", (a.words, a.sha) == (b.words, b.sha)):
        raise _two_sides(directory)


def _two_sides(directory: Any) -> ValueError:
    return ValueError(f"resume: {directory.path} compares two different sides; go on with: specbench ab --resume")


def _floor_of(directory: Any, as_json: bool) -> None:
    from specbench.harness.ab.judge import EXIT_INVALID
    from specbench.harness.ab.noise import noise_floor, store_floor
    from specbench.harness.judge.overall import INVALID
    from specbench.harness.store.files import write_json

    from .ab_session import report

    record = report(directory)
    stop_if_interrupted(directory)
    if not record["is_aa"]:
        raise _two_sides(directory)
    floor = noise_floor(record, directory.manifest)
    write_json(directory.path / "noise.json", floor)
    _print(floor, as_json)
    if record["verdict"] == INVALID:
        typer.echo("specbench: the A/A is invalid and is not stored; see ab.md in the run directory", err=True)
    else:
        typer.echo(f"specbench: stored in {store_floor(floor, directory.manifest['environment'])}", err=True)
    typer.echo(f"specbench: run directory: {directory.path}", err=True)
    if record["verdict"] == INVALID:
        raise typer.Exit(EXIT_INVALID)


def _print(floor: dict[str, Any], as_json: bool) -> None:
    from rich.console import Console

    from specbench.reports.noise_table import noise_table
    from specbench.reports.table import print_result

    if as_json:
        typer.echo(json.dumps(floor, indent=2, ensure_ascii=False))
    else:
        print_result(noise_table(floor), Console())
