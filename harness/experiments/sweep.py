"""A sweep: a run for each load, one after the other, in one directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specbench.harness.exit_codes import ExitCode
from specbench.harness.roofline.probe import measure_machine
from specbench.harness.run import runner
from specbench.harness.run.estimate import sweep_estimate
from specbench.harness.run.prepare import PreparedRun, arm_check
from specbench.harness.run.progress import Place, Progress
from specbench.harness.run.remaining import Remaining
from specbench.harness.spec.commands import SweepOptions
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.spec.devices import pick_device, pick_dtype
from specbench.harness.spec.grid import Grid, make_grid
from specbench.harness.spec.options import parse_loads, parse_numbers
from specbench.harness.spec.plan import RunPlan, acceptance_note, default_strategies, named_arm, plan_config
from specbench.harness.spec.same_arms import check_different
from specbench.harness.store.masking import to_home
from specbench.harness.store.purpose import Purpose
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import OVER, SweepRecord
from specbench.harness.store.sweep_directory import SweepDirectory
from specbench.workloads.guarded import first_line

from . import run as runs
from .session import INTERRUPTED, Destination, Resume, Session, check_writable, resume_by

RESUME = resume_by("specbench sweep --resume")
_MIN_LOADS = 2  # a single load is not a curve
OnPoint = Callable[[RunDirectory], object]


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """`config` with the arms of `grid`, to be measured at each of the `loads`. `purpose`: of every point's run."""

    config: RunConfig
    loads: tuple[int, ...]
    grid: Grid
    purpose: Purpose


def plan_sweep(options: SweepOptions, progress: Progress) -> SweepPlan:
    """ValueError for options that do not give a curve, and for strategies none of whose arms can run."""
    loads = parse_loads("max_concurrency", options.loads, "1,4,16")
    if len(loads) < _MIN_LOADS:
        raise ValueError(
            f"max_concurrency: {options.loads!r} is one load, which makes no curve; give two or more, as 1,4,16"
        )
    if options.num_requests < loads[-1]:
        raise ValueError(
            f"num_prompts: {options.num_prompts} prompts never keep {loads[-1]} requests in flight; give --num-prompts "
            f"{loads[-1]} or more (twice as many fill the batch for longer), or lower --max-concurrency"
        )
    texts = options.strategy or [text.partition(":")[0] for text in default_strategies(options)]
    num_drafts = parse_numbers("num_drafts", options.num_drafts, "1,2,4")
    grid = make_grid(texts, num_drafts, options.engine, lambda text: named_arm(text, options), arm_check(options))
    as_typed = [replace(arm, label=text) for arm, text in zip(grid.arms, grid.arguments, strict=True)]
    check_different(as_typed, options, arm_check(options))
    config = plan_config(options, grid.arms)
    plan = RunPlan(config=config, batch_sizes=loads, acceptance=acceptance_note(options))
    return SweepPlan(config, loads, grid, runs.purpose_of(plan, options, progress))


def sweep(options: SweepOptions, argv: Sequence[str], progress: Progress, on_point: OnPoint) -> SweepDirectory:
    """Measures every point of a new sweep, or the missing points of a stored one; `on_point` gets each closed run.

    Raises ValueError for bad input, which leaves nothing behind.
    """
    if options.resume is not None:
        options.check_alone("a sweep")
        return resume_sweep(options.resume, argv, progress, on_point)
    return new_sweep(plan_sweep(options, progress), Destination.of(options, argv), progress, on_point)


def new_sweep(plan: SweepPlan, to: Destination, progress: Progress, on_point: OnPoint) -> SweepDirectory:
    check_writable(to.folder)
    grid = plan.grid
    with _session(progress) as session:
        begun = SweepRecord(
            argv=to.argv, config=plan.config, loads=plan.loads, arms=grid.rows, notes=grid.notes, purpose=plan.purpose
        )
        sweep = session.create(lambda: SweepDirectory.create(to.folder, to.label, begun), to.folder)
        for note in grid.notes:
            progress.say(note)
        for row in grid.rows:
            if row.refused:
                progress.say(f"{row.label}: refused: {row.refused}")
        _measure(sweep, to.argv, progress, on_point)
    return sweep


def resume_sweep(path: Path, argv: Sequence[str], progress: Progress, on_point: OnPoint) -> SweepDirectory:
    """Measures what is missing from a stored sweep; finished points stay as they are."""
    sweep = SweepDirectory.open(path)
    with _session(progress) as session:
        session.reopen(sweep)
        runs = sweep.runs()
        if all(_is_over(runs.get(load)) for load in sweep.loads):
            _say_nothing_to_do(sweep, progress)
            sweep.close()
        else:
            session.resume(argv)
            _measure(sweep, argv, progress, on_point)
    return sweep


def exit_code(sweep: SweepDirectory) -> ExitCode:
    """INTERRUPTED, or the exit code of the worst run."""
    if sweep.record.status == INTERRUPTED:
        return ExitCode.INTERRUPTED
    return max((runs.exit_code(run) for run in sweep.runs().values()), default=ExitCode.PASSED)


def _session(progress: Progress) -> Session[SweepDirectory]:
    return Session(progress, RESUME, SweepDirectory.close, is_worth_keeping=lambda sweep: bool(sweep.runs()))


def _say_nothing_to_do(sweep: SweepDirectory, progress: Progress) -> None:
    progress.say(f"nothing to do: all {len(sweep.loads)} points of {sweep.path} are measured")
    for run in sweep.runs().values():
        if run.failed_blocks():
            again = runs.RESUME(run.path)
            progress.say(f"arms failed in {run.path.name}; to retry them: {again}, then this command")


def _measure(sweep: SweepDirectory, argv: Sequence[str], progress: Progress, on_point: OnPoint) -> None:
    """Raises KeyboardInterrupt if the user stopped a point, after closing it."""
    num_points, num_arms = len(sweep.loads), len(sweep.record.config.arms)

    def resume(point: Path) -> str:
        return RESUME(sweep.path)

    _measure_machine(sweep, progress)
    remaining = Remaining([str(load) for load in sweep.loads if not _is_over(sweep.runs().get(load))])
    for n, load in enumerate(sweep.loads):
        run = sweep.runs().get(load)
        if _is_over(run):
            continue
        left = remaining.begin(str(load))
        progress.at(Place("", {"point": (n + 1, num_points)}, remaining.left_s))
        progress.say(f"point {n + 1} of {num_points}: concurrency {load}, {num_arms} arms{left}")
        if run is None:
            run = _new_point(sweep, load, progress, resume)
        else:
            run = runs.resume_run(run.path, argv, progress, keep_refused=True, resume=resume)
        on_point(run)
        sweep.close("running")
        if run.record.status == INTERRUPTED:
            raise KeyboardInterrupt


def _new_point(sweep: SweepDirectory, load: int, progress: Progress, resume: Resume) -> RunDirectory:
    earlier = list(sweep.runs().values())
    is_first = not any(run.done_blocks() for run in earlier)
    for run in earlier[:1]:
        runner.check_same_machine(run)  # a curve is measured on one machine, even if resumed

    def check(prepared: PreparedRun) -> None:
        for run in earlier[:1]:
            runner.check_same_inputs(run, prepared)
        if is_first:
            _check_families(sweep, prepared.refused)
            progress.say(sweep_estimate(prepared, sweep.path, sweep.loads[sweep.loads.index(load) :]))

    return runs.new_run(
        replace(to_home(sweep.record.config), max_concurrency=load),
        sweep.purpose_at(load),
        Destination(sweep.runs_path, f"{sweep.record.label}-b{load}", sweep.record.argv),
        progress,
        check=check,
        resume=resume,
    )


def _check_families(sweep: SweepDirectory, refused: Mapping[str, str]) -> None:
    """Called before anything is measured: if no arm of a strategy can be built, that is bad input, not a result."""
    families: dict[str, list[str]] = {}
    for arm in sweep.record.arms:
        if not arm.refused:
            families.setdefault(arm.family, []).append(arm.label)
    for labels in families.values():
        if all(label in refused for label in labels):
            raise ValueError(f"{labels[0]}: {refused[labels[0]].removeprefix(labels[0] + ': ')}")


def _measure_machine(sweep: SweepDirectory, progress: Progress) -> None:
    """Probes the machine's limits once per sweep, while its memory is free. If that fails, no ideal is shown."""
    if sweep.record.machine is not None:
        return
    config = sweep.record.config
    device = pick_device(config.device)
    progress.say("measuring the machine's limits")
    try:
        machine = measure_machine(device, pick_dtype(config.dtype, device))
    except (RuntimeError, ValueError) as error:  # out of memory, or impossible figures
        progress.say(f"no ideal speed-ups: the machine's limits could not be measured: {first_line(error)}")
        return
    sweep.put(replace(sweep.record, machine=machine))


def _is_over(run: RunDirectory | None) -> bool:
    return run is not None and run.record.status in OVER
