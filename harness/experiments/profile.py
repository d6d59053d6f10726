"""Profiles: one run directory per batch size, one process per arm."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specbench.harness.exit_codes import ExitCode
from specbench.harness.profiling.graph_certificate import parse_claims
from specbench.harness.profiling.profile_run import (
    FOLDER,
    ArmProfile,
    Tracing,
    arm_folder,
    printed_command,
    profile_arm,
)
from specbench.harness.profiling.rules import PhaseRules
from specbench.harness.registry import strategy_class
from specbench.harness.run.prepare import arm_check
from specbench.harness.run.progress import Progress
from specbench.harness.spec.commands import ProfileOptions
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.spec.devices import pick_device
from specbench.harness.spec.plan import plan_run
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.inputs_record import WorkloadRecord
from specbench.harness.store.purpose import Purpose
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import ProfileRecord, RunRecord

from .run import by_batch_size
from .session import Destination, Session, check_writable, exit_code


@dataclass(frozen=True, slots=True)
class Profiled:
    """The arms of a directory that were profiled, by label."""

    directory: RunDirectory
    arms: Mapping[str, ArmProfile]

    @property
    def exit_code(self) -> ExitCode:
        record = self.directory.record
        return exit_code(record.status, has_failed=len(self.arms) < len(record.arms))


def profiles(options: ProfileOptions, argv: Sequence[str], progress: Progress) -> Iterator[Profiled]:
    """Profiles every arm at every batch size; yields each size's directory once closed. Stops after an interrupted
    one."""
    plan = plan_run(options, arm_check(options))
    tracing = _tracing(options)
    purpose = Purpose(recipe=plan.recipe, ablation=plan.ablation, acceptance=plan.acceptance)
    for config, label in by_batch_size(plan, options.label):
        to = Destination(options.output_dir, label, tuple(argv))
        profiled = profile(config, tracing, purpose, to, progress)
        yield profiled
        if profiled.exit_code == ExitCode.INTERRUPTED:
            return


def commands(options: ProfileOptions) -> Iterator[str]:
    """One command line per arm, which can be run unchanged here or on another machine with specbench.

    ValueError for a tool, a number of rounds, a strategy or a strategy option that is not allowed. All else is checked
    by the machine that runs the command.
    """
    plan = plan_run(options, arm_check(options))
    _tracing(options)  # raises for what a run would refuse
    for arm in plan.config.arms:
        strategy_class(arm.strategy).of(arm.options)
    chosen = "torch" if options.tool == "torch" or plan.config.tensor_parallel_size > 1 else "nsys"
    for config, _ in by_batch_size(plan, options.label):
        for arm in config.arms:
            folder = Path(f"profile-{arm_folder(arm.label)}-b{config.max_concurrency}")
            words = printed_command(replace(config, arms=(arm,)), chosen, options.rounds, folder)
            yield f"mkdir -p {shlex.quote(str(folder))} && {shlex.join(words)}"


def _tracing(options: ProfileOptions) -> Tracing:
    rules = PhaseRules.shipped().with_file(options.rules)
    return Tracing(
        tool=options.tool,
        num_rounds=options.rounds,
        rules=rules,
        twin=not options.no_twin,
        claims=parse_claims(options.claim),
    )


def profile(config: RunConfig, tracing: Tracing, purpose: Purpose, to: Destination, progress: Progress) -> Profiled:
    """Profiles every arm; one that fails is recorded, and the others continue. ValueError for bad input."""
    nsys = tracing.nsys(pick_device(config.device).type, config.tensor_parallel_size)
    for arm in config.arms:
        arm_check(config)(arm)
    check_writable(to.folder)
    profiled_arms: dict[str, ArmProfile] = {}

    def close(directory: RunDirectory, status: str | None) -> None:
        directory.end_without_tables(status or ("complete" if profiled_arms else "failed"))

    def again(path: Path) -> str:
        return shlex.join(to.argv)  # the profiles of one command belong together: all are made again

    with Session(progress, again, close, is_worth_keeping=lambda directory: bool(profiled_arms)) as session:
        begun = _begun(config, tracing, purpose, to.argv)
        directory = session.create(lambda: RunDirectory.create(to.folder, to.label, begun), to.folder)
        for arm in config.arms:
            profiled = _try_arm(directory, replace(config, arms=(arm,)), tracing, nsys, progress)
            if profiled is not None:
                profiled_arms[arm.label] = profiled
    return Profiled(directory, profiled_arms)


def _begun(config: RunConfig, tracing: Tracing, purpose: Purpose, argv: Sequence[str]) -> RunRecord:
    return RunRecord(
        argv=tuple(argv),
        config=config,
        workload=WorkloadRecord(name=config.workload.name),
        arms=tuple(ArmRecord(label=arm.label, strategy=arm.strategy) for arm in config.arms),
        profile=ProfileRecord(tool=tracing.tool, num_rounds=tracing.num_rounds),
        purpose=purpose,
    )


def _try_arm(
    directory: RunDirectory, config: RunConfig, tracing: Tracing, nsys: str | None, progress: Progress
) -> ArmProfile | None:
    """None if it failed: the arm's entry in run.json and its log say why. ValueError for bad input."""
    (arm,) = config.arms
    try:
        profiled = profile_arm(config, tracing, nsys, directory.path / FOLDER / arm_folder(arm.label), progress.say)
    except (RuntimeError, ValueError) as error:
        directory.put_arm(replace(directory.record.arm(arm.label), status="failed", error=str(error)))
        if isinstance(error, ValueError):
            raise
        progress.say(f"{arm.label}: failed: {error}")
        return None
    record = profiled.report.record
    directory.put(replace(directory.record, model=record.model, workload=record.workload, sampling=record.sampling))
    directory.put_arm(replace(record.arm(arm.label), status="ok"))
    return profiled
