"""Analyses a trace of any engine; can keep a copy without names and the process environment."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from specbench.harness.profiling.analysis import analyse_trace
from specbench.harness.profiling.graph_certificate import parse_claims
from specbench.harness.profiling.node_map import read_node_maps
from specbench.harness.profiling.nsys_trace import export_report
from specbench.harness.profiling.profile_file import write_profile
from specbench.harness.profiling.record import Profile
from specbench.harness.profiling.redact import redact
from specbench.harness.profiling.rules import PhaseRules
from specbench.harness.profiling.trace_db import KINETO, trace_kind
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.directories import directory_name, utc
from specbench.harness.store.masking import masked
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import ProfileRecord, RunRecord

LABEL = "profile-import"


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What the user says of a trace. `rules`: read before the shipped ones. `nodes`: what splits graphs that hold
    several phases. `claims`: PART=MODE. `command`: that made it, where the trace does not say it."""

    rules: Path | None = None
    nodes: Path | None = None
    claims: Sequence[str] = ()
    command: str | None = None


def analyse(trace: Path, told: Told) -> Profile:
    """ValueError for a claim that is not one, and for a command beside that of the trace."""
    claims = parse_claims(told.claims)
    profile = analyse_trace(
        trace,
        rules=PhaseRules.shipped().with_file(told.rules),
        node_maps=() if told.nodes is None else read_node_maps(told.nodes),
        claims=claims,
        notes=[f"claimed on the command line: {part}={mode}" for part, mode in claims.items()],
    )
    if told.command is None:
        return profile
    if profile.source.command is not None:
        raise ValueError(f"command: {trace.name} holds its own, {shlex.join(profile.source.command)}; leave it out")
    try:
        command = masked(tuple(shlex.split(told.command)))
    except ValueError as error:
        raise ValueError(f"command: cannot read {told.command!r}: {error}") from error
    return replace(profile, source=replace(profile.source, command=command, is_command_given=True))


def check_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"output: {folder} exists and is not an empty folder; give another")


def keep(
    profile: Profile, trace: Path, folder: Path, argv: Sequence[str], write_reports: Callable[[], list[Path]]
) -> tuple[Path, list[Path]]:
    """The redacted copy, and the profile and its reports beside it, as a run that a site can hold.

    All or nothing: a folder without the redacted trace must not look like an import.
    """
    created = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        copy, files = _redacted(trace, folder), [write_profile(profile, folder), *write_reports()]
        record = _record(profile, argv)
        RunDirectory(folder, record).put(record)
        return copy, files
    except BaseException:
        if created:
            shutil.rmtree(folder)
        raise


def _record(profile: Profile, argv: Sequence[str]) -> RunRecord:
    """Of the machine and the model a trace says nothing."""
    now = datetime.now(timezone.utc)
    shown = masked(tuple(argv))
    return RunRecord(
        run_id=directory_name(LABEL, now),
        label=LABEL,
        status="complete",
        argv=shown,
        command=shlex.join(shown),
        started_utc=utc(now),
        ended_utc=utc(now),
        arms=(ArmRecord(label=profile.source.file, status="ok"),),
        profile=ProfileRecord(tool=profile.source.kind, num_rounds=profile.quality.num_rounds),
    )


def _redacted(trace: Path, directory: Path) -> Path:
    """The copy that is kept, named for what it holds; of an nsys report its export, which can be redacted."""
    kind = trace_kind(trace)
    with tempfile.TemporaryDirectory() as folder:
        original = trace if kind else export_report(trace, Path(folder))
        json_name = "trace.json.gz" if trace.suffix == ".gz" else "trace.json"
        copy = directory / (json_name if kind == KINETO else "trace.sqlite")
        redact(original, copy)
    return copy
