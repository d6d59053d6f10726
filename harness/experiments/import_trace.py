"""Analyses a trace of any engine; can store a copy without host and user names and the process environment."""

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
from specbench.harness.store.writing import writing

LABEL = "profile-import"


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceOptions:
    """What the user says about a trace. `rules`: take precedence over the shipped ones. `nodes`: splits graphs that
    contain several phases. `claims`: PART=MODE. `command`: the traced command, if the trace does not contain it."""

    rules: Path | None = None
    nodes: Path | None = None
    claims: Sequence[str] = ()
    command: str | None = None


def analyse(trace: Path, options: TraceOptions) -> Profile:
    """Analyses a trace. ValueError for an invalid claim, or for a command if the trace contains one."""
    claims = parse_claims(options.claims)
    profile = analyse_trace(
        trace,
        rules=PhaseRules.shipped().with_file(options.rules),
        node_maps=() if options.nodes is None else read_node_maps(options.nodes),
        claims=claims,
        notes=[f"claimed on the command line: {part}={mode}" for part, mode in claims.items()],
    )
    if options.command is None:
        return profile
    if profile.source.command is not None:
        raise ValueError(f"command: {trace.name} contains its own, {shlex.join(profile.source.command)}; leave it out")
    try:
        command = masked(tuple(shlex.split(options.command)))
    except ValueError as error:
        raise ValueError(f"command: cannot read {options.command!r}: {error}") from error
    return replace(profile, source=replace(profile.source, command=command, is_command_given=True))


def check_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"output: {folder} exists and is not an empty folder; give another")


def keep(
    profile: Profile, trace: Path, folder: Path, argv: Sequence[str], write_reports: Callable[[], list[Path]]
) -> tuple[Path, list[Path]]:
    """Stores the redacted copy with the profile and its reports, as a run that can be part of a site.

    All or nothing: a folder without the redacted trace must not look like an import.
    """
    created = not folder.exists()
    with writing("output", folder):
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
    """The run record, without machine and model, which a trace does not contain."""
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
    """The stored copy, named after its content; for an nsys report, its SQLite export, which can be redacted."""
    kind = trace_kind(trace)
    with tempfile.TemporaryDirectory() as folder:
        original = trace if kind else export_report(trace, Path(folder))
        json_name = "trace.json.gz" if trace.suffix == ".gz" else "trace.json"
        copy = directory / (json_name if kind == KINETO else "trace.sqlite")
        redact(original, copy)
    return copy
