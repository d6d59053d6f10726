"""`specbench profile run`: trace the arms of a run with nsys or the torch profiler, and report what the traces say."""

from __future__ import annotations

import typer

from specbench.harness.spec.commands import ProfileOptions

from .derived import takes_options, typed_command
from .output import end
from .run import check_recipe


@takes_options
def profile_run(options: ProfileOptions) -> None:
    """Trace N steady decode rounds of every arm, each in a process of its own, and report them.

    Takes the options of `specbench run`; the workload gives the prompts, --max-concurrency the batch. The batch is
    filled at once and kept full: arrival times, repeats and output lengths have no part in it, and stop ids are
    ignored. A profile never says how fast something is: it leaves no speed figures, and prints how much the profiler
    slowed the rounds.

    Exit code: 0 all arms profiled, 1 an arm failed, 2 bad input, 130 interrupted.

    Examples:

      specbench profile run -s eagle:k=4 -s naive-eagle:k=4 --max-concurrency 8

      specbench profile run -s eagle:k=4 --tool nsys --rounds 100 --print-command

      specbench profile run -s eagle:k=4 --rules my-kernels.toml
    """
    from specbench.harness.experiments.profile import commands, profiles

    from .profile_output import print_profiles
    from .progress import RunProgress

    check_recipe(options)
    if options.print_command:
        for line in commands(options):
            typer.echo(line)
        return
    codes = []
    with RunProgress(options.quiet) as progress:
        for profiled in profiles(options, typed_command(), progress):
            with progress.paused():
                codes.append(print_profiles(profiled, options.format))
    end(max(codes))
