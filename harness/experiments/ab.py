"""An A/B experiment: both sides in interleaved blocks, in this process or in separate ones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from specbench.harness.engines.several import Engines
from specbench.harness.experiments.ab_code import code_identity, find_checkout, own_checkout, resolve_ref, worktree
from specbench.harness.experiments.ab_fresh import FreshBlocks
from specbench.harness.experiments.ab_in_process import check_code, measure_in_process
from specbench.harness.experiments.ab_sides import Configs, configs_of, parse_side, side_config
from specbench.harness.judge.comparable import check_same_load, differences, joined_config, same_arm
from specbench.harness.judge.noise import outlook, read_floors
from specbench.harness.run import runner
from specbench.harness.run.machine_watch import Watcher, find_probe
from specbench.harness.run.prepare import PreparedRun, initial_record, prepare
from specbench.harness.run.progress import Progress
from specbench.harness.spec.commands import AbOptions
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.spec.devices import pick_device
from specbench.harness.stats.verdict import MIN_PAIRS
from specbench.harness.store.ab_blocks import missing_blocks
from specbench.harness.store.ab_record import LABELS, AbPlan, AbRecord, Side
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.prompts import write_prompts
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import RunRecord
from specbench.harness.text import parse_effect, parse_share

from .session import Destination, Resume, Session, check_writable, resume_by

RESUME = resume_by("specbench ab --resume")


def experiment(options: AbOptions, common: Sequence[str], argv: Sequence[str], progress: Progress) -> RunDirectory:
    """Measures a new experiment, or what is missing from a stored one. `common`: options of a run for both sides.
    ValueError if both sides are only those."""
    if options.resume is not None:
        options.check_alone("an experiment", common)
        return resume_experiment(options.resume, argv, progress)
    if not any((options.a.strip(), options.b.strip(), options.ref_a, options.ref_b)):
        raise ValueError("a: name the sides with -A and -B, as -A eagle:k=2 -B eagle:k=4; for A/A use specbench power")
    plan = plan_experiment(options, common, options.blocks)
    return new_experiment(plan, configs_of(plan), Destination.of(options, argv), progress)


def plan_experiment(options: AbOptions, common: Sequence[str], num_blocks: int) -> AbPlan:
    """The plan, with refs resolved to commits; `common` are options of a run for both sides.

    Raises ValueError for invalid options.
    """
    if options.blocks < MIN_PAIRS and not options.no_verdict:
        raise ValueError(
            f"blocks: {options.blocks} is not allowed; a verdict takes {MIN_PAIRS} or more, --no-verdict measures fewer"
        )
    texts = ((options.a, options.ref_a), (options.b, options.ref_b))
    sides = [parse_side(label, text, ref, common) for label, (text, ref) in zip(LABELS, texts, strict=True)]
    has_refs = any(side.ref is not None for side in sides)
    if has_refs and options.in_process:
        raise ValueError("in_process: two revisions cannot live in one process; leave --in-process out")
    if options.checkout and not has_refs:
        raise ValueError(f"checkout: {options.checkout!r} has no effect without a revision; name one, as -A ref:main")
    root = find_checkout(options.checkout) if has_refs else None
    sides = [
        replace(side, sha=resolve_ref(root, side.ref)) if root is not None and side.ref else side for side in sides
    ]
    return AbPlan(
        sides=(sides[0], sides[1]),
        num_blocks=num_blocks,
        min_effect=parse_effect(options.min_effect),
        min_same_output=parse_share("min_same_output", options.min_same_output),
        order_seed=options.order_seed,
        in_process=options.in_process,
        allow_mismatch=options.allow_mismatch,
        checkout=str(root) if root is not None else None,
    )


def new_experiment(
    plan: AbPlan, configs: Configs, to: Destination, progress: Progress, resume: Resume = RESUME
) -> RunDirectory:
    """Measures a plan from its first block; the directory is closed, complete or interrupted. `configs`: of its sides,
    whose arms were checked; `resume`: the command that resumes it.

    Raises ValueError for bad input and NotComparableError for sides that do not match; nothing is left behind then.
    """
    check_writable(to.folder)
    a, b = configs
    if a is not None and b is not None and not plan.allow_mismatch:
        check_same_load(a, b)
    with _session(plan, progress, resume) as session:
        # For fresh processes, it records the workload, the model and what the arm resolves to.
        run, begun = None, RunRecord(argv=to.argv, arms=tuple(ArmRecord(label=label) for label in LABELS))
        names: dict[str, str] = {}
        if plan.in_process:
            assert a is not None and b is not None, "refs in one process"
            run = session.enter(prepare(joined_config(a, b, plan.num_blocks), progress))
            names = {arm.label: arm.text for arm in run.config.arms}
            begun = initial_record(run, to.argv)
            arms = tuple(replace(arm, notes=(names[arm.label], *arm.notes)) for arm in begun.arms)
            begun = replace(begun, arms=arms)
        watcher, unchecked = _watcher(_readable_configs(plan, configs))
        begun = replace(begun, ab=AbRecord(plan=plan, unchecked=tuple(unchecked), names=names))
        directory = session.create(lambda: RunDirectory.create(to.folder, to.label, begun), to.folder)
        floors = [f for f in read_floors(directory.record.environment) if f.in_process == plan.in_process]
        if floors and plan.num_blocks >= MIN_PAIRS:
            progress.say(outlook(floors[0], plan.num_blocks))
        _measure(session, run, plan, directory, watcher, progress)
    return directory


def resume_experiment(path: Path, argv: Sequence[str], progress: Progress, resume: Resume = RESUME) -> RunDirectory:
    """Measures the missing blocks of a stored experiment, with its own plan. ValueError if it is not an experiment."""
    directory = RunDirectory.open(path)
    if directory.record.ab is None:
        raise ValueError(
            f"resume: {directory.path} is not an A/B run; resume with: specbench run --resume {directory.path}"
        )
    plan = directory.record.ab.plan
    with _session(plan, progress, resume) as session:
        session.reopen(directory)
        directory.check_tables()
        if missing_blocks(plan, directory):
            runner.check_same_machine(directory)
            run = None
            if plan.in_process:
                check_code(directory)
                run = session.enter(prepare(directory.config_to_go_on(), progress))
                runner.check_same_inputs(directory, run)
            watcher, _ = _watcher(_readable_configs(plan))
            session.resume(argv)
            _measure(session, run, plan, directory, watcher, progress)
        else:
            progress.say(f"nothing to do: all {plan.num_blocks} blocks of {directory.path} are measured")
            if directory.record.status != "complete":
                session.begin()
    return directory


def _session(plan: AbPlan, progress: Progress, resume: Resume) -> Session[RunDirectory]:
    def has_a_pair(directory: RunDirectory) -> bool:
        return len(missing_blocks(plan, directory)) < plan.num_blocks

    def close(directory: RunDirectory, status: str | None) -> None:
        progress.say("deriving figures")
        _settle(plan, directory)
        runner.close(directory, status)

    return Session(progress, resume, close, is_worth_keeping=has_a_pair)


def _watcher(known: Sequence[RunConfig]) -> tuple[Watcher, list[str]]:
    """The watcher of the blocks, and what it cannot check. Engines that run as separate programs share the GPU with the
    measured one, so the number of processes on the GPU means nothing then."""
    device = pick_device(known[0].device if known else "auto").type
    probe, unchecked = find_probe(device, os.environ)
    is_alone = not any(Engines(config.engine).takes_program(arm) for config in known for arm in config.arms)
    return Watcher(device, probe, 1 if is_alone else None), unchecked


def _readable_configs(plan: AbPlan, planned: Configs = (None, None)) -> list[RunConfig]:
    """Of the sides whose options are known here."""
    found = (own or _readable_config(side) for side, own in zip(plan.sides, planned, strict=True))
    return [config for config in found if config is not None]


def _readable_config(side: Side) -> RunConfig | None:
    """None if only the side's revision knows its options."""
    try:
        return side_config(side)
    except ValueError:
        if side.ref is None:
            raise
        return None


def _measure(
    session: Session[RunDirectory],
    run: PreparedRun | None,
    plan: AbPlan,
    directory: RunDirectory,
    watcher: Watcher,
    progress: Progress,
) -> None:
    """`run`: the prepared engines for blocks in this process; None for fresh processes, where each side with a revision
    gets a worktree."""
    if run is not None:
        write_prompts(directory.path, run.workload.prompts, has_ids=run.model.has_token_ids)
        measure_in_process(run, plan, directory, progress, watcher)
        return
    roots: dict[str, Path | None] = {side.label: None for side in plan.sides}
    for side in plan.sides:
        if side.sha is not None:
            roots[side.label] = session.enter(worktree(find_checkout(plan.checkout), side.sha))
    FreshBlocks(plan, directory, roots, watcher, progress).measure()


def _settle(plan: AbPlan, directory: RunDirectory) -> None:
    """Stores whether the sides have the same code and configuration, and how they differ."""
    record, stored = directory.record, directory.record.ab
    assert stored is not None
    if plan.in_process:
        config = record.measured_config
        a, b = (replace(config, arms=(arm,)) for arm in config.arms)
        directory.put(replace(record, ab=replace(stored, is_aa=same_arm(a, b))))
        return
    if len(stored.sides) < len(LABELS):
        return
    first, second = (stored.sides[label] for label in LABELS)
    checkout = find_checkout(plan.checkout) if plan.checkout else own_checkout()
    code = {label: code_identity(stored.sides[label].git, checkout) for label in LABELS}
    assert first.config is not None and second.config is not None
    is_aa = code[LABELS[0]] == code[LABELS[1]] and same_arm(first.config, second.config)
    settled = replace(stored, is_aa=is_aa, code=code, mismatches=tuple(differences(first, second)))
    directory.put(replace(record, ab=settled))
