"""`specbench power`: how small a change this machine can show."""

from __future__ import annotations

from specbench.harness.spec.commands import PowerOptions

from .ab import make_plan
from .derived import takes_options, typed_command


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
    from specbench.harness.ab.noise import read_floors
    from specbench.harness.ab.sides import configs_of
    from specbench.harness.experiments.ab import new_experiment, resume_experiment
    from specbench.harness.experiments.power import check_is_aa
    from specbench.harness.experiments.session import Output
    from specbench.harness.store.environment import collect_environment

    from .ab_output import print_floor, print_learnt_floor
    from .ending import end
    from .progress import RunProgress

    if options.resume is not None:
        options.check_alone("an experiment", words)
        check_is_aa(options.resume)
        with RunProgress(options.quiet) as progress:
            directory = resume_experiment(options.resume, typed_command(), progress)
        end(print_learnt_floor(directory, options.format))
        return
    if options.aa is None:
        if words:
            raise ValueError(f"aa: {' '.join(words)} says what to measure; say in how many blocks with --aa 10")
        floors = read_floors(collect_environment())
        if not floors:
            raise ValueError("aa: nothing is stored for this hardware; measure it with --aa 10 and options of a run")
        print_floor(floors[0], options.format)
        return
    if options.aa < 2:
        raise ValueError(f"aa: {options.aa} is not allowed; must be >= 2 (10 or more tell well)")
    plan = make_plan(options, words, num_blocks=options.aa)
    output = Output(options.output_dir, options.label, tuple(typed_command()))
    with RunProgress(options.quiet) as progress:
        directory = new_experiment(plan, configs_of(plan), output, progress)
    end(print_learnt_floor(directory, options.format))
