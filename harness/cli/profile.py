"""`specbench profile`: make a trace, import one from any engine, show and compare profiles."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from specbench.harness.spec.commands import ProfileOptions

from .derived import Command, takes_options, typed_command
from .output import end, format_option
from .run import check_recipe

FORMATS = ("table", "md", "json", "html")

profile_app = typer.Typer(
    no_args_is_help=True,
    help="Show what happens in a round, from a trace of nsys or torch: phases, graphs, synchronisations, idle time.",
)
_Format = Annotated[str | None, format_option(*FORMATS, default="by the suffix of -o, else table")]
_Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there, not to stdout.")]


@profile_app.command(cls=Command)
@takes_options
def run(options: ProfileOptions) -> None:
    """Trace N steady decode rounds of every arm, each in its own process, and report them.

    Takes the options of `specbench run`. Prompts come from the workload and the batch size from --max-concurrency; the
    batch is always full: arrival times, repeats, output lengths and stop ids are ignored. A profile is not a speed
    measurement: it stores no speed figures, and prints how much the profiler slowed the rounds down.

    vLLM and SGLang, when driven in process, are traced in their own process, with our ranges around the calls of a
    round and around each pass of the drafter.

    Exit code: 0 all arms profiled, 1 an arm failed or a --claim is void, 2 bad input, 4 a trace does not show it, 130
    interrupted.

    Examples:

      specbench profile run -s eagle:k=4 -s naive-eagle:k=4 --max-concurrency 8

      specbench profile run -s eagle:k=4 --tool nsys --rounds 100 --print-command

      specbench profile run -s eagle:k=4 --engine vllm --engine-python ~/vllm --claim drafter=full
    """
    from specbench.harness.experiments.profile import commands, profiles

    from .profile_output import claim_code, print_profiles
    from .progress import open_progress

    check_recipe(options)
    if options.print_command:
        for line in commands(options):
            typer.echo(line)
        return
    codes = []
    with open_progress(options, "profile") as progress:
        for profiled in profiles(options, typed_command(), progress):
            with progress.paused():
                codes.append(print_profiles(profiled, options.format))
                codes += [claim_code(arm.profile) for arm in profiled.arms.values() if options.claim and arm.profile]
    end(max(codes))


@profile_app.command(name="import", cls=Command)
def import_trace(
    trace: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="An nsys .sqlite or .nsys-rep, or a torch profiler's .json or .json.gz."),
    ],
    rules: Annotated[Path | None, typer.Option(metavar="FILE", help=ProfileOptions.schema()["rules"].help)] = None,
    nodes: Annotated[
        Path | None, typer.Option(help="nodes.json of a specbench run, to split graphs that contain several phases.")
    ] = None,
    claim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART=MODE",
            help="What should run from CUDA graphs: verify, drafter, or its first or later passes; full or "
            "piecewise. Repeatable.",
        ),
    ] = None,
    command: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The traced command, if the trace does not contain it.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Store the profile, its page and a redacted trace there."),
    ] = None,
    format: Annotated[str, format_option(*FORMATS)] = "table",
) -> None:
    """Analyse a trace by nsys or the torch profiler, also one of vLLM or SGLang.

    The kind of trace is detected from its content. The trace is not changed, and nothing is stored without -o. With -o,
    the copy omits the process environment and the host and user names that traces contain, and `specbench report`
    accepts the folder as a run. With --claim, a certificate says whether the parts ran from graphs, separately for each
    drafter pass if ranges distinguish them.

    Exit code: 0 no claim, or it holds; 1 a claim is void, 2 bad input, 4 the trace does not show it.

    Examples:

      specbench profile import report.sqlite

      specbench profile import rank0.json.gz --rules my-names.toml -o imported

      specbench profile import rank0.json.gz --claim drafter=full --command "vllm serve MODEL"
    """
    from specbench.harness.experiments.import_trace import TraceOptions, analyse, check_empty, keep
    from specbench.reports.profile.files import write_profile_reports

    from .profile_output import claim_code, print_stored

    if output is not None:
        check_empty(output)
    title = f"Profile: {trace.name}"
    options = TraceOptions(rules=rules, nodes=nodes, claims=claim or (), command=command)
    profiles = {trace.name: analyse(trace, options)}
    print_stored(profiles, title, format, None)
    if output is not None:
        reports = partial(write_profile_reports, profiles, output, title)
        copy, files = keep(profiles[trace.name], trace, output, typed_command(), reports)
        typer.echo(f"wrote {copy}: a copy without the process environment, host and user names", err=True)
        for path in files:
            typer.echo(f"wrote {path}", err=True)
    end(claim_code(profiles[trace.name]))


@profile_app.command(cls=Command)
def show(
    profile: Annotated[
        Path, typer.Argument(metavar="PROFILE", help="A profile.json, its folder, or a run directory with profiles.")
    ],
    format: _Format = None,
    output: _Output = None,
) -> None:
    """Report a stored profile: what ran, how reliable the trace is, and the figures of a round.

    Examples:

      specbench profile show runs/20260102T030405Z-profile-0a1b2c3d

      specbench profile show runs/20260102T030405Z-profile-0a1b2c3d -o page.html
    """
    from specbench.reports.profile.files import read_profiles

    from .profile_output import print_stored

    profiles = read_profiles(profile)
    print_stored(profiles, f"Profiles of {profile.name or profile.resolve().name}", format, output)


@profile_app.command(cls=Command)
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A profile.json, or one arm's folder.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The profile to compare with A.")],
    format: _Format = None,
    output: _Output = None,
) -> None:
    """Compare two profiles: phases, launches, graph shares, synchronisations, idle time and kernels; changes are B - A.

    Example:

      specbench profile diff before/profile.json after/profile.json -o page.html
    """
    from specbench.reports.profile.files import read_one_profile

    from .profile_output import print_difference

    (name_a, profile_a), (name_b, profile_b) = read_one_profile(a), read_one_profile(b)
    names = (name_a, name_b) if name_a != name_b else (f"{name_a} ({a})", f"{name_b} ({b})")
    print_difference((profile_a, profile_b), names, format, output)
