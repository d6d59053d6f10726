"""`specbench power`: how small a change this machine can show."""

from __future__ import annotations

import typer

from specbench.harness.exit_codes import ExitCode
from specbench.harness.spec.commands import PowerOptions
from specbench.harness.store.noise_record import NoiseFloor

from .ab import judge_and_write, print_noise
from .derived import takes_options, typed_command
from .output import end, print_json, say_if_interrupted


@takes_options
def power(options: PowerOptions, words: list[str]) -> None:
    """Measure the noise floor of this machine in A/A blocks, and print the MDE and the blocks needed.

    All other options are those of `specbench run`, with one arm. The noise floor is stored for this hardware under
    $SPECBENCH_CACHE/noise (~/.cache/specbench/noise), and `specbench ab` reads it before it starts. Without --aa the
    latest stored one is shown.

    Exit code: 0 measured, 2 bad input, 4 the A/A itself is invalid (blocks rejected, fewer than two that count, or
    a change between identical sides), 130 interrupted.

    Examples:

      specbench power --aa 10 -s eagle:k=4 --dataset-name sharegpt-held-out --num-prompts 20

      specbench power
    """
    from specbench.harness.experiments.power import RESUME, learn_floor, measure_aa, stored_floor
    from specbench.harness.experiments.session import INTERRUPTED

    from .progress import open_progress

    if options.resume is None and options.aa is None:
        _print(stored_floor(options, words), options.format)
        return
    with open_progress(options, "power") as progress:
        directory = measure_aa(options, words, typed_command(), progress)
    record = judge_and_write(directory)
    say_if_interrupted(directory.record.status, directory.path, RESUME)
    if directory.record.status == INTERRUPTED:
        raise typer.Exit(ExitCode.INTERRUPTED)
    floor, stored = learn_floor(record, directory)
    _print(floor, options.format)
    outcome = (
        f"stored in {stored}" if stored else "the A/A is invalid and is not stored; see ab.md in the run directory"
    )
    typer.echo(f"specbench: {outcome}\nspecbench: run directory: {directory.path}", err=True)
    end(ExitCode.PASSED if stored else ExitCode.INVALID)


def _print(floor: NoiseFloor, format: str) -> None:
    if format == "json":
        print_json(floor)
    else:
        print_noise(floor)
