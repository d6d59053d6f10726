"""``specbench history``: figures by commit, from a directory that many jobs add runs to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specbench.harness.text import parse_count, parse_effect
from specbench.workloads.json_values import JsonObject

from .derived import Command
from .output import format_option, print_tables

if TYPE_CHECKING:
    from specbench.harness.judge.history.points import Series
    from specbench.harness.judge.history.steps import Suspect
    from specbench.harness.judge.history.store import History

    from .progress import RunProgress

history = typer.Typer(
    help="Figures by commit: add runs, show change points, list suspects, accept known changes.", no_args_is_help=True
)
_Directory = Annotated[Path, typer.Argument(help="The directory of the history.", metavar="HISTORY")]
_Metric = Annotated[str | None, typer.Option(help="Only this metric, as step_ms or tpot_ms.")]
_Arm = Annotated[str | None, typer.Option(help="Only this arm.")]
_MinEffect = Annotated[str, typer.Option(help="The smallest change that matters.")]
_Format = Annotated[str, format_option("table", "json")]


@history.command(cls=Command)
def add(
    directory: _Directory, runs: Annotated[list[Path], typer.Argument(help="Run directories.", metavar="RUN")]
) -> None:
    """Copy runs into a history, each into its own directory; concurrent jobs are safe.

    Adding a run again after it was resumed replaces the unfinished copy. A different run with the same id is refused.
    An A/B run is kept for the site, but its sides are not points of the history.

    Example:

      specbench history add history/ runs/20260102T030405Z-nightly-0a1b2c3d
    """
    from specbench.harness.judge.history.adding import add_run
    from specbench.harness.store.run_record import OVER
    from specbench.harness.store.writing import CannotWriteError

    errors = []
    for run in runs:
        try:
            added = add_run(directory, run)
            typer.echo(f"{added.outcome}: {added.path}")
            if added.status not in OVER:
                typer.echo(f"specbench: {added.path.name} is {added.status}: add it again when it has ended", err=True)
            if added.is_experiment:
                typer.echo(
                    f"specbench: {added.path.name} is an A/B run: kept, but not a point of the history", err=True
                )
        except CannotWriteError:
            raise  # no run can be added
        except ValueError as error:
            errors.append(str(error))
            typer.echo(f"specbench: not added: {error}", err=True)
    if errors:
        raise ValueError(f"{len(errors)} of {len(runs)} runs were not added")


@history.command(cls=Command)
def show(
    directory: _Directory,
    metric: _Metric = None,
    arm: _Arm = None,
    last: Annotated[str, typer.Option(metavar="COMMITS", help="Show only this many commits, the newest.")] = "30",
    min_effect: _MinEffect = "1%",
    format: _Format = "table",
) -> None:
    """Show what changed, and whether the code or the machine caused it.

    Prints a row for each arm and metric, then the commits of those that changed. With --metric or --arm: the commits of
    each of these.

    Examples:

      specbench history show history/

      specbench history show history/ --metric step_ms --arm eagle:k=4
    """
    from specbench.harness.judge.history.steps import dated_steps, find_segments
    from specbench.harness.run.track import track
    from specbench.reports.experiments.history_table import (
        SegmentedSeries,
        history_json,
        overview_tables,
        problem_notes,
        series_table,
    )

    from .progress import RunProgress

    effect = parse_effect(min_effect)
    if not (num_last := parse_count(last)):
        raise ValueError(f"last: {last!r} is not allowed; allowed: a whole number of 1 or more")
    with RunProgress(quiet=False) as progress:
        stored, series = _chosen(directory, metric, arm, progress)
        segments = [find_segments(one, commits, effect) for one, commits in track(series, "series", progress)]
    parts = [
        SegmentedSeries(series=one, segments=found, steps=dated_steps(one, found))
        for (one, _), found in zip(series, segments, strict=True)
    ]
    if format == "json":
        entries = [{"series": one.series, "segments": one.segments, "steps": one.steps} for one in parts]
        sys.stdout.write(history_json(entries, stored.problems))
        return
    if metric is None and arm is None:
        print_tables(*overview_tables(parts))
        parts = [one for one in parts if one.events()]
    print_tables(*(series_table(one, num_last) for one in parts))
    for note in problem_notes(stored.problems):
        typer.echo(f"specbench: {note}", err=True)


@history.command(cls=Command)
def suspects(
    directory: _Directory,
    metric: _Metric = None,
    arm: _Arm = None,
    min_effect: _MinEffect = "1%",
    format: _Format = "table",
) -> None:
    """List the newest points that are outliers of their segment, with the A/B command that decides. Always exit code
    0: a suspect is not a verdict.

    Example:

      specbench history suspects history/
    """
    from specbench.harness.judge.history.steps import find_suspects
    from specbench.harness.run.track import track
    from specbench.reports.experiments.history_table import history_json, suspects_table

    from .progress import RunProgress

    effect = parse_effect(min_effect)
    with RunProgress(quiet=False) as progress:
        stored, series = _chosen(directory, metric, arm, progress)
        found = [find_suspects(one, commits, effect) for one, commits in track(series, "series", progress)]
    newest = [suspect for of_series in found for suspect in of_series]
    if format == "json":
        entries = [{"arm": s.series.arm, "metric": s.series.metric, "suspect": _plain(s)} for s in newest]
        sys.stdout.write(history_json(entries, stored.problems))
    else:
        print_tables(suspects_table(newest, stored.problems))


@history.command(cls=Command)
def accept(
    directory: _Directory,
    commit: Annotated[str, typer.Argument(help="The commit of the known change, 7 characters or more.")],
    metric: _Metric = None,
    arm: _Arm = None,
    note: Annotated[str, typer.Option(help="Reason, kept in history.toml.")] = "",
) -> None:
    """Accept a known change point in history.toml: figures are judged anew from that commit on.

    Example:

      specbench history accept history/ 3f21af49e86c --metric step_ms --note "the head is larger"
    """
    from specbench.harness.judge.history.accepted import Accepted
    from specbench.harness.judge.history.accepted import accept as add_accepted
    from specbench.harness.judge.history.store import read_history

    entry = Accepted(commit=commit, metric=metric or "", arm=arm or "", note=note)
    path = add_accepted(directory, entry, read_history(directory).points)
    typer.echo(f"accepted {commit} in {path}")


def _chosen(
    directory: Path, metric: str | None, arm: str | None, progress: RunProgress
) -> tuple[History, list[tuple[Series, list[str]]]]:
    """The history, and its series of this metric and arm with the commits whose steps were accepted."""
    from specbench.harness.judge.history.accepted import accepted_commits, read_accepted
    from specbench.harness.judge.history.points import METRICS, build_series
    from specbench.harness.judge.history.store import read_history
    from specbench.harness.judge.limits import unknown
    from specbench.harness.run.track import track

    if metric is not None and metric not in METRICS:
        raise ValueError(f"metric: {unknown(metric, METRICS)}")
    stored = read_history(directory, lambda runs: track(runs, "run", progress))
    if not stored.num_runs and not stored.problems:
        raise ValueError(f"history: {directory} holds no runs; add some with `specbench history add {directory} RUN`")
    accepted = read_accepted(directory)
    series = build_series(stored.points)
    arms = list(dict.fromkeys(one.arm for one in series))
    if arm is not None and arm not in arms:
        raise ValueError(f"arm: no run of {directory} has {arm!r}; allowed: {', '.join(arms) or 'none'}")
    selected = [s for s in series if metric in (None, s.metric) and arm in (None, s.arm)]
    return stored, [(s, accepted_commits(accepted, s)) for s in selected]


def _plain(suspect: Suspect) -> JsonObject:
    from specbench.harness.store.files import to_object
    from specbench.reports.experiments.history_table import decide_by

    return {k: v for k, v in to_object(suspect).items() if k != "series"} | {"decide_by": decide_by(suspect)}
