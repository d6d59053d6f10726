"""`specbench profile run`: trace the arms of a run with nsys or the torch profiler, and report what the traces say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .like_run import like_run

RulesFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="TOML with your own rules for range names and attention kernels, read before the shipped ones.",
    ),
]


@like_run(without=("resume", "ranges", "accuracy*", "certify_graphs"), defaults={"label": "profile"})
def profile_run(
    ctx: typer.Context,
    tool: Annotated[
        str, typer.Option(help="nsys, torch (torch.profiler) or auto: nsys where there is a GPU and nsys on the PATH.")
    ] = "auto",
    rounds: Annotated[int, typer.Option(help="Steady decode rounds in the trace, after warm-up.")] = 50,
    rules: RulesFile = None,
    print_command: Annotated[
        bool, typer.Option("--print-command", help="Print the whole command of every arm and run nothing.")
    ] = False,
    no_twin: Annotated[
        bool, typer.Option("--no-twin", help="Do not run the same rounds without a profiler (no slow-down).")
    ] = False,
    **of_run: Any,
) -> None:
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
    from specbench.harness.exit_codes import ExitCode
    from specbench.harness.experiments.profile import ProfileOptions, commands, profile
    from specbench.harness.experiments.run import by_batch_size
    from specbench.harness.experiments.session import Output
    from specbench.harness.profiling.rules import PhaseRules

    from .ending import end
    from .profile_output import print_profiles
    from .progress import RunProgress
    from .run import typed_command
    from .run_options import requested

    asked = requested(ctx)
    configs = by_batch_size(asked.config, asked.batch_sizes, of_run["label"])
    phase_rules = PhaseRules.shipped().with_file(rules)
    if print_command:
        for line in commands([config for config, _ in configs], tool, rounds):
            typer.echo(line)
        return
    options = ProfileOptions(tool=tool, num_rounds=rounds, rules=phase_rules, twin=not no_twin)
    code = ExitCode.PASSED
    for config, name in configs:
        output = Output(of_run["output_dir"], name, tuple(typed_command()))
        with RunProgress(of_run["quiet"]) as progress:
            profiled = profile(config, options, asked.record, output, progress)
        code = max(code, print_profiles(profiled, as_json=of_run["as_json"]))
        if code == ExitCode.INTERRUPTED:
            break
    end(code)
