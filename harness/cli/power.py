"""`specbench power`: how small a change this machine can show."""

from __future__ import annotations

from specbench.harness.spec.commands import PowerOptions

from .derived import takes_options, typed_command
from .ending import end


@takes_options
def power(options: PowerOptions, words: list[str]) -> None:
    """Learn the noise of this machine from A/A blocks, and say what effects it can show and how many blocks they take.

    All further options are those of `specbench run`, with one arm. The floor is stored for this hardware under
    $SPECBENCH_CACHE/noise (~/.cache/specbench/noise), and `specbench ab` reads it before it starts. Without --aa the
    last stored one is shown.

    Exit code: 0 measured, 2 bad input, 4 the A/A itself is invalid (blocks rejected, or a change found where there is
    none), 130 interrupted.

    Examples:

      specbench power --aa 10 -s eagle:k=4 --dataset-name sharegpt-held-out --num-prompts 20

      specbench power
    """
    from specbench.harness.experiments.ab import experiment
    from specbench.harness.experiments.power import check_is_aa, stored_floor

    from .ab_output import print_floor, print_learnt_floor
    from .progress import RunProgress

    if options.resume is not None:
        check_is_aa(options.resume)
    elif options.aa is None:
        print_floor(stored_floor(words), options.format)
        return
    elif options.aa < 2:
        raise ValueError(f"aa: {options.aa} is not allowed; must be >= 2 (10 or more tell well)")
    with RunProgress(options.quiet) as progress:
        directory = experiment(options, words, options.aa or 0, typed_command(), progress)
    end(print_learnt_floor(directory, options.format))
