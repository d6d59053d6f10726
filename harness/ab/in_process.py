"""Blocks of both sides in this process, one engine each: for models whose start-up is dear.

What a process draws once (memory layout, clocks at start, compiled kernels) is then shared by all blocks, so the
interval says less about the next process; the table says so.
"""

from __future__ import annotations

from specbench.harness.engines.base import ResolvedArm
from specbench.harness.run.prepare import PreparedRun
from specbench.harness.run.progress import Progress
from specbench.harness.run.runner import Arms
from specbench.harness.store.run_directory import RunDirectory

from .blocks import add_record, missing_blocks
from .code import code_state, own_checkout
from .plan import MANIFEST_KEY, AbPlan
from .watch import GpuProbe, Watch


def measure_in_process(
    run: PreparedRun, plan: AbPlan, directory: RunDirectory, progress: Progress, probe: GpuProbe | None
) -> None:
    """Measures what the directory misses. A block that fails is stored as failed, and the others go on.

    Both engines are warmed before the first block: the side that starts must not be the colder one. ValueError where an
    experiment would go on with other code than it began with.
    """
    _check_code(directory)
    arms = Arms(run, directory, progress, lambda label, block: f"block {block + 1} of {plan.num_blocks}: {label}")
    by_label = {arm.config.label: arm for arm in run.arms}
    missing = missing_blocks(plan, directory)
    for arm in run.arms if missing else ():
        _warm(arms, arm, progress)
    for block, order in missing:
        for position, label in enumerate(order):
            with Watch(probe) as watch:
                rows = arms.try_block(by_label[label], block)
            add_record(directory.path, label, block, position, **watch.record())
            if rows is not None:
                arms.store(by_label[label], block, rows)


def _check_code(directory: RunDirectory) -> None:
    """This process has its code loaded; one that goes on with an interrupted experiment may have loaded another."""
    stored, state = directory.manifest[MANIFEST_KEY], code_state(own_checkout())
    if state is not None and stored.setdefault("code_state", state) != state:
        raise ValueError(
            f"resume: {directory.path} began with other code than this, commit or local edits; start a new experiment"
        )


def _warm(arms: Arms, arm: ResolvedArm, progress: Progress) -> None:
    label = arm.config.label
    try:
        arms.warm(arm)
    except RuntimeError as error:  # memory: its first block tries again and stores what it says
        progress.say(f"{label}: not ready: {error}; trying again at its turn")
        arms.drop(label)
