"""Blocks of both sides in this process, with one engine each: for models that are slow to start.

All blocks then share what is fixed per process (memory layout, clocks at start, compiled kernels), so the interval
says less about the next process; the table says so.
"""

from __future__ import annotations

from dataclasses import replace

from specbench.harness.engines.base import ResolvedArm
from specbench.harness.experiments.ab_code import own_checkout
from specbench.harness.run.estimate import block_estimate
from specbench.harness.run.machine_watch import Watcher
from specbench.harness.run.prepare import PreparedRun
from specbench.harness.run.progress import Place, Progress
from specbench.harness.run.runner import Arms
from specbench.harness.store.ab_blocks import missing_blocks
from specbench.harness.store.ab_record import AbPlan
from specbench.harness.store.code_state import code_state
from specbench.harness.store.run_directory import RunDirectory


def measure_in_process(
    run: PreparedRun, plan: AbPlan, directory: RunDirectory, progress: Progress, watcher: Watcher
) -> None:
    """Measures the missing blocks of the directory. A block that fails is stored as failed, and the others continue.

    Both engines are warmed up before the first block, so that the side that starts is not colder. ValueError if an
    experiment would continue with different code.
    """
    check_code(directory)
    sides = plan.order()

    def where(label: str, block: int) -> Place:
        return Place(label, {"block": (block + 1, plan.num_blocks)})

    def place_of(label: str, block: int) -> int:
        return sides[block].index(label)

    by_label = {arm.config.label: arm for arm in run.arms}
    missing = missing_blocks(plan, directory)
    to_come = [label for _, order in missing for label in order]
    if missing:
        texts = {arm.label: arm.text for arm in run.config.arms}
        progress.say(block_estimate(run, directory, [texts[label] for label in to_come]))
    arms = Arms(run, directory, progress, where, place_of, watcher, to_come)
    for arm in run.arms if missing else ():
        _warm(arms, arm, progress)
    for block, order in missing:
        for label in order:
            rows = arms.try_block(by_label[label], block)
            if rows is not None:
                arms.store(by_label[label], block, rows)
    arms.fail_untried()


def check_code(directory: RunDirectory) -> None:
    """This process has loaded its code; when an interrupted experiment is resumed, that code may be different: a
    ValueError then."""
    record, state = directory.record, code_state(own_checkout())
    assert record.ab is not None
    if state is None:
        return
    if record.ab.code_state is None:
        directory.put(replace(record, ab=replace(record.ab, code_state=state)))
    elif record.ab.code_state != state:
        raise ValueError(
            f"resume: {directory.path} began with different code (commit or local edits); start a new experiment"
        )


def _warm(arms: Arms, arm: ResolvedArm, progress: Progress) -> None:
    label = arm.config.label
    try:
        arms.warm(arm)
    except RuntimeError as error:  # out of memory: its first block tries again and stores the error
        progress.say(f"{label}: not ready: {error}; trying again at its turn")
        arms.drop(label)
