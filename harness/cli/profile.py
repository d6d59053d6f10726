"""`specbench profile`: make a trace, read anybody's trace, show and compare what traces say."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specbench.harness.spec.commands import ProfileOptions

from .derived import Command
from .formats import format_option
from .profile_run import profile_run

if TYPE_CHECKING:
    from specbench.harness.profiling.record import Profile
    from specbench.reports.document import Document

FORMATS = ("table", "md", "json", "html")
_SUFFIXES = {".md": "md", ".json": "json", ".html": "html", ".htm": "html"}

profile_app = typer.Typer(
    no_args_is_help=True,
    help="Say from an nsys or torch-profiler trace what a round does: phases, graphs, synchronisations, idle time.",
)
profile_app.command(name="run", cls=Command)(profile_run)

_Format = Annotated[
    str | None, typer.Option("--format", "-f", help="table, md, json or html. Default: by -o's name, else table.")
]


@profile_app.command(name="import", cls=Command)
def import_trace(
    trace: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="An nsys .sqlite or .nsys-rep, or a torch profiler's .json or .json.gz."),
    ],
    rules: Annotated[Path | None, typer.Option(metavar="FILE", help=ProfileOptions.schema()["rules"].help)] = None,
    nodes: Annotated[
        Path | None, typer.Option(help="nodes.json of a specbench run, to split graphs that hold several phases.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Keep the profile, its page and a redacted trace there."),
    ] = None,
    format: Annotated[str, format_option(*FORMATS)] = "table",
) -> None:
    """Analyse a trace that nsys or the torch profiler wrote, also of vLLM and SGLang.

    What kind of trace it is, its content says. The trace is not changed, and nothing is kept without -o; with it, the
    copy lacks the process environment, host and user names that traces hold.

    Examples:

      specbench profile import report.sqlite

      specbench profile import rank0.json.gz --rules my-names.toml -o imported
    """
    from specbench.harness.profiling.analysis import analyse_trace
    from specbench.harness.profiling.node_map import read_node_maps
    from specbench.harness.profiling.rules import PhaseRules

    if output is not None and output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ValueError(f"output: {output} exists and is no empty folder; give another")
    phase_rules = PhaseRules.shipped().with_file(rules)
    node_maps = () if nodes is None else read_node_maps(nodes)
    profile = analyse_trace(trace, rules=phase_rules, node_maps=node_maps)
    _print_profiles({trace.name: profile}, f"Profile: {trace.name}", format, None)
    if output is not None:
        _keep(profile, trace, output)


@profile_app.command(cls=Command)
def show(
    profile: Annotated[
        Path, typer.Argument(metavar="PROFILE", help="A profile.json, its folder, or a run directory with profiles.")
    ],
    format: _Format = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there, not to stdout.")
    ] = None,
) -> None:
    """Report a stored profile: what ran, how far to trust the trace, and the figures of a round.

    Examples:

      specbench profile show runs/20260102T030405Z-profile-0a1b2c3d

      specbench profile show runs/20260102T030405Z-profile-0a1b2c3d -o page.html
    """
    from specbench.reports.profile_files import read_profiles

    profiles = read_profiles(profile)
    _print_profiles(profiles, f"Profiles of {profile.name or profile.resolve().name}", format, output)


@profile_app.command(cls=Command)
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A profile.json, or one arm's folder.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="What is compared with it.")],
    format: _Format = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there, not to stdout.")
    ] = None,
) -> None:
    """Compare two profiles: phases, launches, graph shares, synchronisations, idle time and kernels; changes are B - A.

    Example:

      specbench profile diff before/profile.json after/profile.json -o page.html
    """
    from specbench.reports.profile_diff_report import diff_document, diff_json
    from specbench.reports.profile_files import read_one_profile

    chosen = _format(format, output)
    (name_a, profile_a), (name_b, profile_b) = read_one_profile(a), read_one_profile(b)
    names = (name_a, name_b) if name_a != name_b else (f"{name_a} ({a})", f"{name_b} ({b})")
    if chosen == "json":
        _write(diff_json(profile_a, profile_b), output)
    else:
        _print_document(diff_document(profile_a, profile_b, names), chosen, output)


def _print_profiles(profiles: Mapping[str, Profile], title: str, format: str | None, output: Path | None) -> None:
    from specbench.reports.profile_files import profiles_json
    from specbench.reports.profile_report import profiles_document

    chosen = _format(format, output)
    if chosen == "json":
        _write(profiles_json(profiles), output)
    else:
        _print_document(profiles_document(profiles, title), chosen, output)


def _print_document(document: Document, format: str, output: Path | None) -> None:
    from rich.console import Console

    from specbench.reports.document_text import markdown_document, plain_document, print_document
    from specbench.reports.profile_html import html_page

    if format == "table" and output is None:
        print_document(document, Console())
        return
    texts: dict[str, Callable[[Document], str]] = {"table": plain_document, "md": markdown_document, "html": html_page}
    _write(texts[format](document), output)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    output.write_text(text, encoding="utf-8")
    typer.echo(f"wrote {output}", err=True)


def _format(format: str | None, output: Path | None) -> str:
    if format is None:
        return _SUFFIXES.get(output.suffix.lower(), "table") if output else "table"
    _check_format(format)
    return format


def _check_format(format: str) -> None:
    if format not in FORMATS:
        raise ValueError(f"format: {format!r} is not known; allowed: {', '.join(FORMATS)}")


def _keep(profile: Profile, trace: Path, directory: Path) -> None:
    """All or nothing: a folder without the redacted trace must not look like an import."""
    from specbench.harness.profiling.record import write_profile
    from specbench.reports.profile_files import write_profile_reports

    created = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        copy = _redacted(trace, directory)
        written = [write_profile(profile, directory)]
        written += write_profile_reports({trace.name: profile}, directory, f"Profile: {trace.name}")
    except BaseException:
        if created:
            shutil.rmtree(directory)
        raise
    typer.echo(f"wrote {copy}: a copy without the process environment, host and user names", err=True)
    for path in written:
        typer.echo(f"wrote {path}", err=True)


def _redacted(trace: Path, directory: Path) -> Path:
    """The copy that is kept, named for what it holds; of an nsys report its export, which can be redacted."""
    from specbench.harness.profiling.nsys_trace import export_report
    from specbench.harness.profiling.redact import redact

    with trace.open("rb") as stream:
        head = stream.read(256)
    if head.startswith(b"\x1f\x8b") or head.lstrip()[:1] in (b"{", b"["):
        copy = directory / ("trace.json.gz" if head.startswith(b"\x1f\x8b") else "trace.json")
        redact(trace, copy)
        return copy
    copy = directory / "trace.sqlite"
    if head.startswith(b"SQLite format 3\0"):
        redact(trace, copy)
        return copy
    with tempfile.TemporaryDirectory() as folder:
        redact(export_report(trace, Path(folder)), copy)
    return copy
