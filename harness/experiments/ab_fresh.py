"""Blocks in separate processes: each is a `specbench run` of one arm and one repeat, whose rows are copied.

One process per arm and block is the right unit of measurement: memory layout, clocks, caches and compiled kernels vary
from process to process, and the sides cannot disturb each other. Any revision of the code can be run, since only its
command line is used.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from specbench.harness.engines.base import NotReadyError
from specbench.harness.exit_codes import ExitCode, NotComparableError
from specbench.harness.experiments.ab_code import environment_of, own_checkout
from specbench.harness.experiments.ab_sides import name_it
from specbench.harness.experiments.run import ROWS_ALONE
from specbench.harness.judge.comparable import ADVICE, differences
from specbench.harness.run.estimate import process_estimate
from specbench.harness.run.machine_watch import Watcher
from specbench.harness.run.progress import Place, Progress
from specbench.harness.run.remaining import Remaining
from specbench.harness.store.ab_blocks import missing_blocks
from specbench.harness.store.ab_record import AbPlan, AbRecord, Side, SideRecord
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.block_records import add_record
from specbench.harness.store.code_state import code_state
from specbench.harness.store.prompts import copy_prompts
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import RunRecord

_ADVICE = "start a new experiment, or name revisions with --ref-a and --ref-b"
_CHILDREN, _LOGS = "children", "log"


@dataclass(slots=True)
class FreshBlocks:
    """Measures the missing blocks of a directory. `roots`: the checkout of each side, None for the current code."""

    plan: AbPlan
    directory: RunDirectory
    roots: Mapping[str, Path | None]
    watcher: Watcher
    progress: Progress
    _never_ready: dict[str, str] = field(
        default_factory=dict, init=False
    )  # side -> error of an engine that never starts

    @property
    def _stored(self) -> AbRecord:
        stored = self.directory.record.ab
        assert stored is not None
        return stored

    @property
    def _first(self) -> Mapping[str, SideRecord]:
        return self._stored.sides

    def measure(self) -> None:
        """Raises ValueError for options that `specbench run` refuses, NotComparableError if the sides do not match.

        A block that fails is stored as failed, and the others continue. On Ctrl-C the running process is killed.
        """
        num_blocks, missing = self.plan.num_blocks, missing_blocks(self.plan, self.directory)
        to_come = [label for _, order in missing for label in order]
        remaining = Remaining(to_come)
        self.progress.say(f"to measure: {2 * len(missing)} processes, one after the other")
        self.progress.say(process_estimate(self.plan, self.directory, to_come))
        for block, order in missing:
            for position, label in enumerate(order):
                left = remaining.begin(label)
                if label in self._never_ready:
                    self._failed(label, block, self._never_ready[label])
                    continue
                what = self.plan.side(label).text or "as given"
                self.progress.at(Place(label, {"block": (block + 1, num_blocks)}, remaining.left_s))
                self.progress.say(f"block {block + 1} of {num_blocks}: {label}, {what}{left}")
                self._block(self.plan.side(label), block, position)
        shutil.rmtree(self.directory.path / _CHILDREN, ignore_errors=True)

    def _block(self, side: Side, block: int, position: int) -> None:
        folder = self.directory.path / _CHILDREN / f"{side.label}-{block}"
        shutil.rmtree(folder, ignore_errors=True)
        log = self.directory.path / _LOGS / f"{side.label}-{block}.txt"
        log.parent.mkdir(exist_ok=True)
        started, state = time.monotonic(), self._state(side)
        with self.watcher.watch() as watch:
            code = self._run(side, folder, log)
        unchecked = ("local edits of the code between blocks (no git checkout)",) * (side.sha is None and state is None)
        record = replace(
            watch.record(side.label, block, position),
            unchecked=(*watch.unchecked, *unchecked),
            exit_code=code,
            wall_s=round(time.monotonic() - started, 3),
            code_state=state,
        )
        if code == ExitCode.BAD_INPUT:
            raise ValueError(f"{side.label}: {_last_line(log)}")
        runs = sorted(folder.glob("*/run.json"))
        if len(runs) > 1:
            raise ValueError(f"{side.label}: made {len(runs)} runs; a side is one arm at one batch size")
        if code not in (0, ExitCode.FAILED) or not runs:
            add_record(self.directory.path, record)
            self._failed(side.label, block, f"exit code {code}: {_last_line(log)}")
            return
        child = RunDirectory.open(runs[0].parent)
        add_record(self.directory.path, replace(record, run_id=child.record.run_id))
        self._check(side, child.record, state)
        copy_prompts(child.path, self.directory.path)
        self._take(side.label, block, child)
        shutil.rmtree(folder)

    def _run(self, side: Side, folder: Path, log: Path) -> int:
        command = [sys.executable, "-m", "specbench.harness.cli.main", "run", *side.words]
        command += ["--num-repeats", "1", "--label", side.label, "--output-dir", str(folder)]
        with log.open("w", encoding="utf-8") as stream:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                env={**environment_of(self.roots[side.label]), ROWS_ALONE: "1"},
            )
            try:
                return process.wait()
            finally:  # Ctrl-C: an interrupted block is measured again
                if process.poll() is None:
                    process.kill()
                    process.wait()

    def _state(self, side: Side) -> str | None:
        """State of the current code, which may be edited meanwhile; None for a revision, which has its own worktree."""
        return None if side.sha is not None else code_state(self.roots[side.label] or own_checkout())

    def _check(self, side: Side, record: RunRecord, state: str | None) -> None:
        """Before any row of a side is stored: checks its code, that it is one arm, and that it is comparable."""
        sha = record.git.sha if record.git else None
        if side.sha is not None and sha != side.sha:
            raise ValueError(f"{side.label}: ran the code of {sha or 'an installed copy'} instead of {side.sha}")
        if len(record.arms) != 1:
            labels = ", ".join(arm.label for arm in record.arms)
            raise ValueError(f"{side.label}: strategy: {labels} are not allowed; allowed: one arm; {name_it(side)}")
        first = self._first.get(side.label)
        before = first.git.sha if first and first.git else None
        if first is not None and sha != before:
            raise ValueError(
                f"{side.label}: its first block ran the code of {before or 'an installed copy'}, this one that of "
                f"{sha or 'an installed copy'}; {_ADVICE}"
            )
        self._check_engine(side, record.arms[0])
        self._check_edits(side, state)
        for label, other in self._first.items():
            found = differences(other, record)
            if found and (label == side.label or not self.plan.allow_mismatch):
                raise NotComparableError(f"{label} and {side.label} differ in {'; '.join(found)}; {ADVICE}")
        if first is None:
            self._introduce(side, record, state)

    def _check_engine(self, side: Side, arm: ArmRecord) -> None:
        """Checks that the engine's version, and its checkout or branch, have not changed since the first block."""
        first = self.directory.record.arm(side.label)
        now, before = (
            [each.engine.config.get(key) for key in ("source.commit", "source.dirty")] if each.engine else None
            for each in (arm, first)
        )
        if None not in (now, before) and now != before:
            raise ValueError(
                f"{side.label}: the engine's checkout has changed since its first block; start a new experiment, and "
                "name commits with --engine-ref"
            )
        if arm.engine and first.engine and arm.engine.version != first.engine.version:
            raise ValueError(
                f"{side.label}: its first block was measured on version {first.engine.version} of its engine, this one "
                f"on {arm.engine.version}; start a new experiment"
            )

    def _check_edits(self, side: Side, state: str | None) -> None:
        """Checks that the files of the checkout, before and after a block, are the same as for all earlier blocks.
        Sides that both use the current code must have run the same code."""
        if state is None:
            return
        if self._state(side) != state:
            raise ValueError(f"{side.label}: the code was edited while a block ran it; {_ADVICE}")
        for label, first in self._first.items():
            if first.code_state not in (None, state):
                whose = "its" if label == side.label else f"{label}'s"
                raise ValueError(f"{side.label}: the code was edited since {whose} first block; {_ADVICE}")

    def _introduce(self, side: Side, record: RunRecord, state: str | None) -> None:
        """Copies what a side's first process resolved into the experiment's record."""
        config, (arm,) = record.measured_config, record.arms
        introduced = SideRecord(
            workload=record.workload,
            model=record.model,
            sampling=record.sampling,
            config=config,
            environment=record.environment,
            git=record.git,
            command=record.command,
            code_state=state,
        )
        name = config.arms[0].text
        joined, stored = self.directory.record, self._stored
        if not stored.sides:
            joined = replace(
                joined, workload=record.workload, model=record.model, sampling=record.sampling, config=config
            )
        sides, names = {**stored.sides, side.label: introduced}, {**stored.names, side.label: name}
        self.directory.put(replace(joined, ab=replace(stored, sides=sides, names=names)))
        own = self.directory.record.arm(side.label)
        self.directory.put_arm(
            replace(
                own,
                strategy=arm.strategy,
                config=arm.config,
                warmup=arm.warmup,
                notes=(name, *arm.notes),
                engine=arm.engine,
                unknown=arm.unknown,
            )
        )

    def _take(self, label: str, block: int, child: RunDirectory) -> None:
        failures = list(child.failed_blocks().values())
        if failures:
            if NotReadyError.SAID in failures[0]:
                self._never_ready[label] = failures[0]
            self._failed(label, block, failures[0])
            return
        self.directory.append(label, block, **child.columns(child.record.arms[0].label, 0))

    def _failed(self, label: str, block: int, error: str) -> None:
        self.directory.fail_blocks([(label, block)], error)
        self.progress.say(f"block {block + 1}: {label} failed: {error}")


def _last_line(log: Path) -> str:
    """The last line that a process printed: its error, without the box around usage errors."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    last = next((line for line in reversed(lines) if any(c.isalnum() for c in line)), "it printed nothing")
    return last.strip("\u2502| ").removeprefix("specbench: error: ").removeprefix("specbench: ")
