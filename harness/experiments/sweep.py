"""What `specbench sweep` does with its grid: a run for each load, one after the other, then what they say together."""

from __future__ import annotations

import gc
import json
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from specbench.harness.roofline.machine import measure_machine
from specbench.harness.run import runner
from specbench.harness.run.prepare import PreparedRun, first_line
from specbench.harness.run.target import pick_device, pick_dtype
from specbench.harness.run_config import RunConfig
from specbench.harness.store.files import to_plain
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.sweep.figures import sweep_record
from specbench.harness.sweep.grid import Grid
from specbench.harness.sweep.record import SweepDirectory
from specbench.reports.crossover_table import crossover_tables, plan_table
from specbench.reports.run_report import write_reports
from specbench.reports.sweep_report import markdown_sweep, write_sweep_reports
from specbench.reports.table import print_result

from . import run_accuracy, run_graphs
from .progress import RunProgress
from .run_lock import run_lock
from .run_session import EXIT_INTERRUPTED, check_writable, continue_run, exit_code, new_run

_OVER = ("complete", "failed")  # of a run: nothing is left to measure in it


def record_of_run(config: RunConfig, options: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """What the options of `run` beside its arms and configuration put into every run.json. ValueError for bad ones."""
    record = run_graphs.graph_record(options["certify_graphs"], config)
    scored = run_accuracy.parse_accuracy(
        options["accuracy"],
        options["accuracy_num_fewshot"],
        options["accuracy_include_path"],
        config.load_format,
        config.arms,
    )
    if scored is not None:
        with RunProgress(quiet) as progress:
            record["evaluation"] = run_accuracy.find_items(scored, config, progress)
    return record


def print_plan(grid: Grid, loads: Sequence[int], config: RunConfig, *, as_json: bool) -> None:
    """`--dry-run`: every point with its arms, and what cannot run."""
    rows = [{"label": r.label, "num_drafts": r.num_drafts, "refused": r.refused} for r in grid.rows]
    plan = {
        "points": [{"max_concurrency": load, "num_blocks": config.num_repeats} for load in loads],
        "arms": rows,
        "num_prompts": config.workload.num_prompts,
        "notes": list(grid.notes),
    }
    if as_json:
        typer.echo(json.dumps(plan, indent=2, ensure_ascii=False))
    else:
        print_result(plan_table(plan), Console())


def new_sweep(
    config: RunConfig,
    loads: Sequence[int],
    grid: Grid,
    record: Mapping[str, Any],
    output_dir: Path,
    label: str,
    argv: list[str],
    *,
    as_json: bool,
    quiet: bool,
) -> int:
    """Measures every point; the exit code. ValueError for bad input, which leaves nothing behind."""
    check_writable(output_dir)
    try:
        sweep = SweepDirectory.create(output_dir, label, argv, config, loads, grid, record)
    except OSError as error:
        raise ValueError(f"output_dir: cannot write to {output_dir}: {error.strerror or error}") from error
    with RunProgress(quiet) as progress:
        for note in grid.notes:
            progress.say(note)
        for row in grid.rows:
            if row.refused:
                progress.say(f"{row.label}: refused: {row.refused}")
    return _measure_and_report(sweep, argv, as_json=as_json, quiet=quiet)


def resume_sweep(path: Path, argv: list[str], *, as_json: bool, quiet: bool) -> int:
    """Measures what a stored sweep has not yet: points that are over stay as they are, the others go on."""
    return _measure_and_report(SweepDirectory.open(path), argv, as_json=as_json, quiet=quiet, is_resumed=True)


def show_sweep(path: Path, *, as_json: bool, markdown: bool, write: bool) -> None:
    """Prints what a sweep has shown so far, derived anew from its runs."""
    sweep = SweepDirectory.open(path)
    record = sweep_record(sweep)
    if markdown:
        pictures = sorted((sweep.path / "plots").glob("*.png"))
        sys.stdout.write(markdown_sweep(record, [picture.as_posix() for picture in pictures]))
    else:
        _print(record, as_json)
    for file in write_sweep_reports(sweep.path, record) if write else ():
        typer.echo(f"wrote {file}", err=True)


def resume_command(sweep: SweepDirectory) -> str:
    return f"specbench sweep --resume {shlex.quote(str(sweep.path))}"


def _measure_and_report(
    sweep: SweepDirectory, argv: list[str], *, as_json: bool, quiet: bool, is_resumed: bool = False
) -> int:
    with run_lock(sweep.path):  # a second process is turned away before it writes anything
        if is_resumed and not _begin_again(sweep, argv, quiet):
            sweep.close()
        else:
            _measure_or_keep(sweep, argv, quiet)
        record = sweep_record(sweep)
        write_sweep_reports(sweep.path, record)
    _print(record, as_json)
    if not as_json:
        typer.echo(f"sweep directory: {sweep.path}")
    sys.stdout.flush()
    if sweep.manifest["status"] == "interrupted":
        typer.echo(f"specbench: interrupted; measured blocks are kept. Go on with: {resume_command(sweep)}", err=True)
        return EXIT_INTERRUPTED
    return max((exit_code(run) for run in sweep.runs().values()), default=0)


def _begin_again(sweep: SweepDirectory, argv: list[str], quiet: bool) -> bool:
    """Whether anything is left to measure; the sweep is then marked as going on."""
    runs = sweep.runs()
    if any(not _is_over(runs.get(load)) for load in sweep.loads):
        sweep.resume(argv)
        return True
    with RunProgress(quiet) as progress:
        progress.say(f"nothing to do: all {len(sweep.loads)} points of {sweep.path} are measured")
        for run in runs.values():
            if run.failed_blocks():
                again = f"specbench run --resume {shlex.quote(str(run.path))}"
                progress.say(f"arms failed in {run.path.name}; to try them again: {again}, then this command")
    return False


def _measure_or_keep(sweep: SweepDirectory, argv: list[str], quiet: bool) -> None:
    """Leaves the sweep closed, complete or interrupted; removed where its first point turned out to be bad input."""
    try:
        _measure(sweep, argv, quiet)
        sweep.close()
    except KeyboardInterrupt:
        sweep.close("interrupted")
    except Exception as error:
        if not sweep.runs() and isinstance(error, ValueError):
            shutil.rmtree(sweep.path)
        else:
            # Said first: on a full disk the line below ends in an error of its own.
            typer.echo(f"specbench: the sweep stopped; go on with: {resume_command(sweep)}", err=True)
            sweep.close("interrupted")
        raise


def _measure(sweep: SweepDirectory, argv: list[str], quiet: bool) -> None:
    """Raises KeyboardInterrupt where the user stopped a point, which is closed then."""
    num_points, num_arms = len(sweep.loads), len(sweep.config.arms)
    _measure_machine(sweep, quiet)
    for n, load in enumerate(sweep.loads):
        run = sweep.runs().get(load)
        if _is_over(run):
            continue
        with RunProgress(quiet) as progress:
            progress.say(f"point {n + 1} of {num_points}: {load} requests at once, {num_arms} arms")
        run = _new_point(sweep, load, quiet) if run is None else continue_run(run, argv, quiet=quiet, keep_refused=True)
        write_reports(run)
        sweep.close("running")
        gc.collect()  # the next point needs the memory of this one's engines
        if run.manifest["status"] == "interrupted":
            raise KeyboardInterrupt


def _new_point(sweep: SweepDirectory, load: int, quiet: bool) -> RunDirectory:
    earlier = list(sweep.runs().values())
    is_first = not any(run.done_blocks() for run in earlier)
    for run in earlier[:1]:
        runner.check_same_machine(run)  # a curve is of one machine, however often it was resumed

    def check(prepared: PreparedRun) -> None:
        for run in earlier[:1]:
            runner.check_same_inputs(run, prepared)
        if is_first:
            _check_families(sweep, prepared.refused)

    return new_run(
        replace(sweep.config, max_concurrency=load),
        sweep.run_record(load),
        sweep.runs_path,
        f"{sweep.manifest['label']}-b{load}",
        list(sweep.manifest["argv"]),
        quiet=quiet,
        check=check,
    )


def _check_families(sweep: SweepDirectory, refused: Mapping[str, str]) -> None:
    """Before anything is measured: a strategy of which no engine can be built is bad input, not a result."""
    families: dict[str, list[str]] = {}
    for arm in sweep.manifest["arms"]:
        if not arm["refused"]:
            families.setdefault(arm["family"], []).append(arm["label"])
    for labels in families.values():
        if all(label in refused for label in labels):
            raise ValueError(f"{labels[0]}: {refused[labels[0]].removeprefix(labels[0] + ': ')}")


def _measure_machine(sweep: SweepDirectory, quiet: bool) -> None:
    """The machine's limits, once a sweep, while its memory is free; without them there is no ideal, which is said."""
    if sweep.manifest["machine"] is not None:
        return
    config = sweep.config
    device = pick_device(config.device)
    with RunProgress(quiet) as progress:
        progress.say("measuring the machine's limits")
        try:
            machine = measure_machine(device, pick_dtype(config.dtype, device))
        except (RuntimeError, ValueError) as error:  # no memory, or figures that no machine has
            progress.say(f"no ideal speed-ups: the machine's limits could not be measured: {first_line(error)}")
            return
    sweep.note(machine=to_plain(machine.to_dict()))


def _is_over(run: RunDirectory | None) -> bool:
    return run is not None and run.manifest["status"] in _OVER


def _print(record: dict[str, Any], as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(to_plain(record), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
        return
    for table in crossover_tables(record):
        print_result(table, Console())
