"""What `specbench profile run` does: one run directory a batch size, one process an arm, the report at the end."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from specbench.harness.arms import resolve_arm
from specbench.harness.profiling.profile_run import (
    FOLDER,
    NO_GPU,
    ArmProfile,
    Settings,
    arm_folder,
    check_tool,
    pick_nsys,
    printed_command,
    profile_arm,
)
from specbench.harness.profiling.record import SlowDown
from specbench.harness.profiling.rules import PhaseRules
from specbench.harness.registry import STRATEGIES, lookup
from specbench.harness.run.target import pick_device
from specbench.harness.run_config import RunConfig
from specbench.harness.store.run_directory import PROFILES, RunDirectory
from specbench.reports.document_text import print_document
from specbench.reports.profile_files import profiles_json, write_profile_reports
from specbench.reports.profile_report import profiles_document
from specbench.reports.result_table import ResultTable
from specbench.reports.table import print_result

from .progress import RunProgress
from .run_lock import run_lock
from .run_session import EXIT_ARM_FAILED, EXIT_INTERRUPTED, check_writable

NamedConfigs = Sequence[tuple[str, RunConfig]]


def print_commands(configs: NamedConfigs, tool: str, num_rounds: int) -> None:
    """One line an arm on stdout: it can be run as it is, here or on another machine with specbench.

    ValueError for a tool, a number of rounds, a strategy or an option of it that is not allowed. What else an arm
    needs, the machine that runs it knows.
    """
    check_tool(tool)
    Settings(num_rounds=num_rounds, nsys=None, rules=PhaseRules.shipped(), twin=False)  # refuses what a run would
    for arm in configs[0][1].arms:
        lookup(STRATEGIES, arm.strategy, "strategy")(arm.options)
    chosen = "torch" if tool == "torch" else "nsys"
    for _, config in configs:
        for arm in config.arms:
            folder = Path(f"profile-{arm_folder(arm.label)}-b{config.max_concurrency}")
            words = printed_command(replace(config, arms=(arm,)), chosen, num_rounds, folder)
            typer.echo(f"mkdir -p {shlex.quote(str(folder))} && {shlex.join(words)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileCommand:
    """The command's own options; see cli/profile_run.py."""

    tool: str
    num_rounds: int
    rules: PhaseRules
    twin: bool
    output_dir: Path
    argv: tuple[str, ...]
    as_json: bool
    quiet: bool

    def run(self, configs: NamedConfigs, record: Mapping[str, Any]) -> int:
        """Profiles every arm of every config; the exit code. ValueError for bad input, before anything is traced."""
        first = configs[0][1]
        device = pick_device(first.device).type
        nsys = pick_nsys(self.tool, device)
        settings = Settings(num_rounds=self.num_rounds, nsys=nsys, rules=self.rules, twin=self.twin)
        for arm in first.arms:
            resolve_arm(arm, device, first.load_format == "dummy")
        check_writable(self.output_dir)
        codes = []
        for label, config in configs:
            codes.append(self._one(label, config, record, settings))
            if codes[-1] == EXIT_INTERRUPTED:
                break
        return max(codes)

    def _one(self, label: str, config: RunConfig, record: Mapping[str, Any], settings: Settings) -> int:
        directory = self._directory(label, config, record)
        found: dict[str, ArmProfile] = {}
        status = "failed"
        with RunProgress(self.quiet) as progress, run_lock(directory.path):
            progress.say(f"writing to {directory.path}")
            try:
                for arm in config.arms:
                    profile = _try_arm(directory, replace(config, arms=(arm,)), settings, progress)
                    if profile is not None:
                        found[arm.label] = profile
                status = "complete" if found else "failed"
            except KeyboardInterrupt:
                status = "interrupted"
            except ValueError:
                if not found:  # bad input leaves nothing behind
                    shutil.rmtree(directory.path)
                raise
            finally:
                if directory.path.exists():
                    directory.end_without_tables(status)
        self._report(directory, found)
        if status == "interrupted":
            typer.echo("specbench: interrupted; the arms profiled so far are kept", err=True)
            return EXIT_INTERRUPTED
        return EXIT_ARM_FAILED if len(found) < len(config.arms) else 0

    def _directory(self, label: str, config: RunConfig, record: Mapping[str, Any]) -> RunDirectory:
        arms = [{"label": arm.label, "strategy": arm.strategy, "config": {}} for arm in config.arms]
        manifest = {
            "argv": list(self.argv),
            "kind": PROFILES,
            "config": config.to_dict(),
            "workload": {"name": config.workload.name},
            "arms": arms,
            "profile": {"tool": self.tool, "num_rounds": self.num_rounds},
            **record,
        }
        try:
            return RunDirectory.create(self.output_dir, label, manifest)
        except OSError as error:
            raise ValueError(f"output_dir: cannot write to {self.output_dir}: {error.strerror or error}") from error

    def _report(self, directory: RunDirectory, found: Mapping[str, ArmProfile]) -> None:
        profiles = {label: arm.profile for label, arm in found.items() if arm.profile is not None}
        title = f"Profiles of {directory.path.name}"
        if profiles:
            write_profile_reports(profiles, directory.path, title)
        if self.as_json:
            typer.echo(profiles_json(profiles))
            return
        console = Console()
        if profiles:
            print_document(profiles_document(profiles, title), console)
        for label, arm in found.items():
            if arm.profile is None:
                print_result(host_table(label, arm), console)
        typer.echo(f"run directory: {directory.path}")


def _try_arm(
    directory: RunDirectory, config: RunConfig, settings: Settings, progress: RunProgress
) -> ArmProfile | None:
    """None where it failed: the arm's entry of run.json and its log say why. ValueError is the user's."""
    (arm,) = config.arms
    try:
        found = profile_arm(config, settings, directory.path / FOLDER / arm_folder(arm.label), progress.say)
    except (RuntimeError, ValueError) as error:
        _set_arm(directory, arm.label, status="failed", error=str(error))
        if isinstance(error, ValueError):
            raise
        progress.say(f"{arm.label}: failed: {error}")
        return None
    told = found.report.manifest
    directory.note(**{key: told[key] for key in ("model", "workload", "sampling")})
    (described,) = told["arms"]
    _set_arm(directory, arm.label, status="ok", **{k: described[k] for k in ("config", "graph_parts", "notes")})
    return found


def _set_arm(directory: RunDirectory, label: str, **values: Any) -> None:
    arms = [entry | values if entry["label"] == label else entry for entry in directory.manifest["arms"]]
    directory.note(arms=arms)


def host_table(label: str, arm: ArmProfile) -> ResultTable:
    """What there is to say without a GPU: the host's time by phase, by its own clock, and the profiler's slow-down."""
    rounds = arm.report.rounds
    rows = [(name, f"{ns / 1e3:.1f}") for name, ns in rounds["host_phases_ns"].items()]
    notes = [NO_GPU, f"synchronisations a round, the engine's count: {rounds['syncs_per_round']:g}"]
    notes += [slow_down_text(arm.slow_down)] if arm.slow_down else []
    return ResultTable(
        title=f"Profile: {label}",
        headers=("phase", "host us (median)"),
        rows=tuple(rows),
        notes=(*notes, *arm.report.notes),
    )


def slow_down_text(slow_down: SlowDown) -> str:
    return (
        f"profiler slow-down: {slow_down.ratio:.2f}x ({slow_down.profiled_round_ns / 1e3:.0f} us a round, "
        f"{slow_down.unprofiled_round_ns / 1e3:.0f} without)"
    )
