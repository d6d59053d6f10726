"""What `specbench ab` and `specbench power` do with a plan: measure, close, judge; keep what was measured."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from specbench.harness.ab.code import code_identity, find_checkout, own_checkout, worktree
from specbench.harness.ab.comparable import arm_name, differences, same_arm
from specbench.harness.ab.fresh import FreshBlocks
from specbench.harness.ab.in_process import measure_in_process
from specbench.harness.ab.judge import judge
from specbench.harness.ab.noise import outlook, read_floors
from specbench.harness.ab.plan import LABELS, MANIFEST_KEY, AbPlan, NotComparableError
from specbench.harness.ab.watch import find_probe
from specbench.harness.arms import resolve_arm
from specbench.harness.run import runner
from specbench.harness.run.prepare import PreparedRun, manifest, prepare
from specbench.harness.run.target import pick_device
from specbench.harness.run_config import RunConfig
from specbench.harness.stats.verdict import LEAST_PAIRS
from specbench.harness.store.files import write_atomically, write_json
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.run_report import write_reports
from specbench.reports.table import markdown_result
from specbench.reports.verdict_table import verdict_table

from .ab_sides import check_same_load, joined_config, side_config
from .progress import RunProgress
from .run_lock import run_lock
from .run_session import check_writable

RECORD_FILE, TABLE_FILE = "ab.json", "ab.md"
_MEASURED_BY = "measured_by"  # keeps `specbench run --resume` from going on with blocks it knows nothing of


def new_experiment(plan: AbPlan, output_dir: Path, label: str, argv: list[str], *, quiet: bool) -> RunDirectory:
    """Measures a plan from its first block; the directory is closed, complete or interrupted.

    Raises ValueError for bad input and NotComparableError for sides that do not match; nothing is left behind then.
    """
    check_writable(output_dir)
    a, b = (side_config(side) if side.ref is None else None for side in plan.sides)
    for config in (a, b):
        if config is not None:  # B's mistake must not come to light after a block of A; a revision judges its own
            _check_arm(config)
    if a is not None and b is not None and not plan.allow_mismatch:
        check_same_load(a, b)
    with RunProgress(quiet) as progress:
        if plan.in_process:
            assert a is not None and b is not None, "refs in one process"
            run = prepare(joined_config(a, b, plan.num_blocks), progress)
            found = manifest(run, argv)
            names = {arm["label"]: arm_name(arm) for arm in found["config"]["arms"]}
            found["config"] = {**found["config"], _MEASURED_BY: "specbench ab"}
            found["arms"] = [{**arm, "notes": [names[arm["label"]], *arm["notes"]]} for arm in found["arms"]]
        else:
            run, found, names = None, _empty_manifest(argv), {}
        probe, unchecked = find_probe(_device(plan), os.environ)
        found[MANIFEST_KEY] = {"plan": plan.to_dict(), "unchecked": unchecked, "names": names}
        directory = RunDirectory.create(output_dir, label, found)
        try:
            _say_outlook(plan, directory, progress)
            with run_lock(directory.path):
                _measure(run, plan, directory, probe, progress)
        except (ValueError, NotComparableError):
            if not any(all((side, n) in directory.done_blocks() for side in LABELS) for n in range(plan.num_blocks)):
                shutil.rmtree(directory.path)
            raise
    return directory


def resume_experiment(path: Path, argv: list[str], *, quiet: bool) -> RunDirectory:
    """Measures what a stored experiment has not yet, with its own plan. ValueError for what is none."""
    directory = RunDirectory.open(path)
    if MANIFEST_KEY not in directory.manifest:
        raise ValueError(f"resume: {directory.path} is not an A/B run; go on with: specbench run --resume")
    plan = AbPlan.from_dict(directory.manifest[MANIFEST_KEY]["plan"])
    with RunProgress(quiet) as progress, run_lock(directory.path):
        if not _pending(plan, directory):
            progress.say(f"nothing to do: all {plan.num_blocks} blocks of {directory.path} are measured")
            if directory.manifest["status"] != "complete":
                _settle(plan, directory)
                runner.close(directory)
            return directory
        runner.check_same_machine(directory)
        run = None
        if plan.in_process:
            stored = {k: v for k, v in directory.manifest["config"].items() if k != _MEASURED_BY}
            run = prepare(RunConfig.from_dict(stored), progress)
            runner.check_same_inputs(directory, run)
        probe, _ = find_probe(_device(plan), os.environ)
        directory.resume(argv)
        _measure(run, plan, directory, probe, progress)
    return directory


def report(directory: RunDirectory) -> dict[str, Any]:
    """Judges a stored experiment and writes ab.json, ab.md and the reports that every run has."""
    record = judge(directory)
    write_json(directory.path / RECORD_FILE, record)
    text = markdown_result(verdict_table(record))
    write_atomically(directory.path / TABLE_FILE, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    write_reports(directory)
    return record


def resume_command(directory: RunDirectory) -> str:
    return f"specbench ab --resume {shlex.quote(str(directory.path))}"


def _check_arm(config: RunConfig) -> None:
    (arm,) = config.arms
    try:
        resolve_arm(arm, pick_device(config.device).type, config.load_format == "dummy")
    except ValueError as error:
        raise ValueError(f"{arm.label}: {error}") from error


def _say_outlook(plan: AbPlan, directory: RunDirectory, progress: RunProgress) -> None:
    """What the experiment may hope to show, where this machine's noise is known."""
    floors = [f for f in read_floors(directory.manifest["environment"]) if f["in_process"] == plan.in_process]
    if floors and plan.num_blocks >= LEAST_PAIRS:
        progress.say(outlook(floors[0], plan.num_blocks))


def _empty_manifest(argv: Sequence[str]) -> dict[str, Any]:
    """Before the first process has told: the workload, the model and what the arms resolve to are its to say."""
    arms = [{"label": label, "strategy": "", "config": {}} for label in LABELS]
    return {"argv": list(argv), "config": {}, "workload": {}, "arms": arms}


def _device(plan: AbPlan) -> str:
    """The device the blocks run on, for the checks beside them: the last --device of side A, else what torch finds."""
    words = [word for given in plan.sides[0].words for word in given.split("=", 1)]
    named = [value for option, value in zip(words, words[1:], strict=False) if option == "--device"]
    return pick_device(named[-1] if named else "auto").type


def _pending(plan: AbPlan, directory: RunDirectory) -> bool:
    done = directory.done_blocks()
    return any((label, n) not in done for label in LABELS for n in range(plan.num_blocks))


def _measure(run: PreparedRun | None, plan: AbPlan, directory: RunDirectory, probe: Any, progress: RunProgress) -> None:
    """Leaves the directory closed. `run`: the prepared engines of blocks in this process; None for fresh processes."""
    progress.say(f"writing to {directory.path}")
    status = None
    try:
        if run is not None:
            measure_in_process(run, plan, directory, progress, probe)
        else:
            with _roots(plan) as roots:
                FreshBlocks(plan, directory, roots, probe, progress.say).measure()
    except KeyboardInterrupt:
        progress.say("interrupted")
        status = "interrupted"
    except OSError as error:
        reason = f"cannot write {directory.path}: {error.strerror or error}; measured blocks are kept"
        raise ValueError(f"{reason}. Make room, then: {resume_command(directory)}") from error
    progress.say("deriving figures")
    _settle(plan, directory)
    runner.close(directory, status)


@contextmanager
def _roots(plan: AbPlan) -> Iterator[Mapping[str, Path | None]]:
    """A worktree for each side with a revision; None for the code at hand."""
    with ExitStack() as stack:
        roots: dict[str, Path | None] = {}
        for side in plan.sides:
            roots[side.label] = None
            if side.sha is not None:
                roots[side.label] = stack.enter_context(worktree(find_checkout(plan.checkout), side.sha))
        yield roots


def _settle(plan: AbPlan, directory: RunDirectory) -> None:
    """What the sides turned out to be: whether they are the same code and configuration, and what they differ in."""
    stored = directory.manifest[MANIFEST_KEY]
    if plan.in_process:
        config = directory.manifest["config"]
        a, b = ({**config, "arms": [arm]} for arm in config["arms"])
        stored.update(is_aa=same_arm(a, b), mismatches=[])
        return
    first = stored.get("first_manifests", {})
    if len(first) < len(LABELS):
        return
    checkout = find_checkout(plan.checkout) if plan.checkout else own_checkout()
    code = {label: code_identity(first[label]["git"], checkout) for label in LABELS}
    same = code["A"] == code["B"] and same_arm(first["A"]["config"], first["B"]["config"])
    stored.update(is_aa=same, code=code, mismatches=differences(first["A"], first["B"]))
