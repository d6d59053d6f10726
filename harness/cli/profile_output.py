"""What the commands of `specbench profile` print: profiled arms, stored profiles, the difference of two."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import typer
from rich.console import Console

from specbench.harness.exit_codes import ExitCode
from specbench.harness.experiments.profile import Profiled
from specbench.harness.experiments.session import INTERRUPTED
from specbench.harness.profiling.graph_certificate import CANNOT_TELL, VOID
from specbench.harness.profiling.host_trace import NO_GPU
from specbench.harness.profiling.profile_run import ArmProfile
from specbench.harness.profiling.record import Profile, SlowDown
from specbench.harness.store.files import json_text, write_named
from specbench.harness.store.writing import writing
from specbench.reports.document import Document, Table
from specbench.reports.html import html_page
from specbench.reports.markdown import markdown_document
from specbench.reports.profile.diff import diff_profiles
from specbench.reports.profile.diff_document import diff_document
from specbench.reports.profile.files import profiles_json, write_profile_reports
from specbench.reports.profile.report import profiles_document
from specbench.reports.terminal import plain_document, print_document, print_result

_SUFFIXES = {".md": "md", ".json": "json", ".html": "html", ".htm": "html"}


def print_profiles(profiled: Profiled, format: str) -> ExitCode:
    """Prints reports, tables or JSON; returns the exit code of the profiles."""
    directory = profiled.directory
    profiles = {label: arm.profile for label, arm in profiled.arms.items() if arm.profile is not None}
    title = f"Profiles of {directory.path.name}"
    if profiles:
        write_profile_reports(profiles, directory.path, title)
    if format == "json":
        typer.echo(profiles_json(profiles))
    else:
        console = Console()
        if profiles:
            print_document(profiles_document(profiles, title), console)
        for label, arm in profiled.arms.items():
            if arm.profile is None:
                print_result(_host_table(label, arm), console)
            for line in arm.ranks.lines() if arm.ranks else ():
                typer.echo(f"{label}, {line}")
        typer.echo(f"run directory: {directory.path}")
    if directory.record.status == INTERRUPTED:
        typer.echo("specbench: interrupted; the arms profiled so far are kept", err=True)
    return profiled.exit_code


def claim_code(profile: Profile) -> ExitCode:
    """The exit code of a claim's certificate."""
    return {VOID: ExitCode.FAILED, CANNOT_TELL: ExitCode.INVALID}.get(profile.graph.verdict, ExitCode.PASSED)


def print_stored(profiles: Mapping[str, Profile], title: str, format: str | None, output: Path | None) -> None:
    chosen = _format(format, output)
    if chosen == "json":
        _write(profiles_json(profiles), output)
    else:
        _print_document(profiles_document(profiles, title), chosen, output)


def print_difference(
    profiles: tuple[Profile, Profile], names: tuple[str, str], format: str | None, output: Path | None
) -> None:
    chosen = _format(format, output)
    if chosen == "json":
        _write(json_text(diff_profiles(*profiles)), output)
    else:
        _print_document(diff_document(*profiles, names), chosen, output)


def _print_document(document: Document, format: str, output: Path | None) -> None:
    if format == "table" and output is None:
        print_document(document, Console())
        return
    texts: dict[str, Callable[[Document], str]] = {"table": plain_document, "md": markdown_document, "html": html_page}
    _write(texts[format](document), output)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    with writing("output", output):
        write_named(output, text)
    typer.echo(f"wrote {output}", err=True)


def _format(format: str | None, output: Path | None) -> str:
    return format or (_SUFFIXES.get(output.suffix.lower(), "table") if output else "table")


def _host_table(label: str, arm: ArmProfile) -> Table:
    """Table for a profile without a GPU: host time by phase, by the host's clock, and the profiler's slow-down."""
    rounds = arm.report.rounds
    rows = [(name, f"{ns / 1e3:.1f}") for name, ns in rounds.host_phases_ns.items()]
    notes = [NO_GPU, f"synchronisations a round, the engine's count: {rounds.syncs_per_round or 0:g}"]
    notes += [_slow_down_text(arm.slow_down)] if arm.slow_down else []
    return Table(
        title=f"Profile: {label}",
        headers=("phase", "host us (median)"),
        rows=tuple(rows),
        notes=(*notes, *arm.report.notes),
    )


def _slow_down_text(slow_down: SlowDown) -> str:
    return (
        f"profiler slow-down: {slow_down.ratio:.2f}x ({slow_down.profiled_round_ns / 1e3:.0f} us a round, "
        f"{slow_down.unprofiled_round_ns / 1e3:.0f} without)"
    )
