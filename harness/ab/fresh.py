"""Blocks in processes of their own: `specbench run` for one arm and one repeat, its rows taken over.

A process an arm and block is the honest unit: memory layout, clocks, caches and compiled kernels are drawn anew each
time, and the other side cannot disturb. It also runs any revision of the code through nothing but its command line.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specbench.harness.exit_codes import ExitCode
from specbench.harness.store.run_directory import RunDirectory

from .blocks import add_record, missing_blocks
from .code import code_state, environment_of, own_checkout
from .comparable import arm_name, differences
from .plan import LABELS, MANIFEST_KEY, AbPlan, NotComparableError, Side
from .watch import GpuProbe, Watch

_ADVICE = "start a new experiment, or name revisions with --ref-a and --ref-b"
_CHILDREN, _LOGS = "children", "log"
_PLAIN = ("workload", "model", "sampling")  # of a child's manifest, for the manifest that joins them


@dataclass(slots=True)
class FreshBlocks:
    """Measures what a directory misses. `roots`: the checkout each side runs from, None for the code at hand."""

    plan: AbPlan
    directory: RunDirectory
    roots: Mapping[str, Path | None]
    probe: GpuProbe | None
    say: Callable[[str], None]
    _first: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)

    def measure(self) -> None:
        """Raises ValueError for options that `specbench run` refuses, NotComparableError where the sides do not match.

        A block that fails is stored as failed, and the others go on. On Ctrl-C the process at work is ended.
        """
        self._first = dict(self.directory.manifest[MANIFEST_KEY].get("first_manifests", {}))
        num_blocks = self.plan.num_blocks
        for block, order in missing_blocks(self.plan, self.directory):
            for position, label in enumerate(order):
                self.say(f"block {block + 1} of {num_blocks}: {label}, {self.plan.side(label).text or 'as given'}")
                self._block(self.plan.side(label), block, position)
        shutil.rmtree(self.directory.path / _CHILDREN, ignore_errors=True)

    def _block(self, side: Side, block: int, position: int) -> None:
        folder = self.directory.path / _CHILDREN / f"{side.label}-{block}"
        shutil.rmtree(folder, ignore_errors=True)
        log = self.directory.path / _LOGS / f"{side.label}-{block}.txt"
        log.parent.mkdir(exist_ok=True)
        started, state = time.monotonic(), self._state(side)
        with Watch(self.probe) as watch:
            code = self._run(side, folder, log)
        facts = {**watch.record(), "exit_code": code, "wall_s": round(time.monotonic() - started, 3)}
        facts["code_state"] = state
        if side.sha is None and state is None:
            facts["unchecked"] = [*facts["unchecked"], "local edits of the code between blocks (no git checkout)"]
        if code == ExitCode.BAD_INPUT:
            raise ValueError(f"{side.label}: {_last_line(log)}")
        found = sorted(folder.glob("*/run.json"))
        if len(found) > 1:
            raise ValueError(f"{side.label}: made {len(found)} runs; a side is one arm at one batch size")
        if code not in (0, ExitCode.FAILED) or not found:
            add_record(self.directory.path, side.label, block, position, **facts)
            self._failed(side.label, block, f"exit code {code}: {_last_line(log)}")
            return
        child = RunDirectory.open(found[0].parent)
        add_record(self.directory.path, side.label, block, position, **facts, run_id=child.manifest["run_id"])
        self._check(side, child.manifest, state)
        self._take(side.label, block, child)
        shutil.rmtree(folder)

    def _run(self, side: Side, folder: Path, log: Path) -> int:
        command = [sys.executable, "-m", "specbench.harness", "run", *side.words]
        command += ["--num-repeats", "1", "--label", side.label, "--output-dir", str(folder)]
        with log.open("w", encoding="utf-8") as stream:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                env=environment_of(self.roots[side.label]),
            )
            try:
                return process.wait()
            finally:  # Ctrl-C: a block that is cut short is measured anew
                if process.poll() is None:
                    process.kill()
                    process.wait()

    def _state(self, side: Side) -> str | None:
        """Of the code at hand, which may be edited at any time; nobody knows where a revision's worktree lies."""
        return None if side.sha is not None else code_state(self.roots[side.label] or own_checkout())

    def _check(self, side: Side, manifest: dict[str, Any], state: str | None) -> None:
        """Before anything of a side is stored: its code, that it is one arm, and that it may stand beside the rest."""
        sha = (manifest.get("git") or {}).get("sha")
        if side.sha is not None and sha != side.sha:
            raise ValueError(f"{side.label}: ran the code of {sha or 'an installed copy'} instead of {side.sha}")
        if len(manifest["arms"]) != 1:
            labels = ", ".join(arm["label"] for arm in manifest["arms"])
            raise ValueError(f"{side.label}: must be one arm, not {labels}; name it with -s")
        if side.label in self._first and sha != (before := (self._first[side.label]["git"] or {}).get("sha")):
            raise ValueError(
                f"{side.label}: its first block ran the code of {before or 'an installed copy'}, this one that of "
                f"{sha or 'an installed copy'}; {_ADVICE}"
            )
        self._check_edits(side, state)
        for label, first in self._first.items():
            found = differences(first, manifest)
            if found and (label == side.label or not self.plan.allow_mismatch):
                raise NotComparableError(f"{label} and {side.label} differ in {'; '.join(found)}")
        if side.label not in self._first:
            self._introduce(side, manifest, state)

    def _check_edits(self, side: Side, state: str | None) -> None:
        """The files of the checkout, before and after a block, are those of every block before it. Sides that both run
        the code at hand run the same code."""
        if state is None:
            return
        if self._state(side) != state:
            raise ValueError(f"{side.label}: the code was edited while a block ran it; {_ADVICE}")
        for label, first in self._first.items():
            if first.get("code_state") not in (None, state):
                whose = "its" if label == side.label else f"{label}'s"
                raise ValueError(f"{side.label}: the code was edited since {whose} first block; {_ADVICE}")

    def _introduce(self, side: Side, manifest: dict[str, Any], state: str | None) -> None:
        """What a side's first process resolved becomes the record's."""
        kept = {key: manifest.get(key) for key in (*_PLAIN, "config", "environment", "git", "command")}
        kept["code_state"] = state
        self._first[side.label] = kept
        joined = self.directory.manifest
        joined[MANIFEST_KEY]["first_manifests"] = self._first
        if len(self._first) == 1:
            joined.update({key: manifest[key] for key in _PLAIN})
            # Not a RunConfig: `specbench run --resume` must not go on with this in one process.
            joined["config"] = {**manifest["config"], "measured_by": "specbench ab"}
        (arm,) = manifest["arms"]
        joined["arms"][LABELS.index(side.label)]["strategy"] = arm["strategy"]
        name = arm_name(manifest["config"]["arms"][0])
        joined[MANIFEST_KEY]["names"] = {**joined[MANIFEST_KEY].get("names", {}), side.label: name}
        self.directory.describe_arm(side.label, config=arm["config"], notes=[name, *arm["notes"]])

    def _take(self, label: str, block: int, child: RunDirectory) -> None:
        failures = list(child.failed_blocks().values())
        if failures:
            self._failed(label, block, failures[0])
            return
        self.directory.append(label, block, **child.columns())

    def _failed(self, label: str, block: int, error: str) -> None:
        self.directory.fail_arm(label, block, error)
        self.say(f"block {block + 1}: {label} failed: {error}")


def _last_line(log: Path) -> str:
    """What a process said last: its error, without the frame that usage errors are drawn in."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    last = next((line for line in reversed(lines) if any(c.isalnum() for c in line)), "it said nothing")
    return last.strip("\u2502| ").removeprefix("specbench: error: ").removeprefix("specbench: ")
