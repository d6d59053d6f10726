"""Measuring from Python: a run, a sweep, an A/B experiment, with the options of the command line as keywords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .results import AbResult, Run, Sweep

if TYPE_CHECKING:
    from specbench.harness.experiments.session import Directory, Resume
    from specbench.harness.run.progress import Progress

D = TypeVar("D", bound="Directory")
Value = str | int | float | bool | Path | Sequence[str] | Sequence[int] | None
Side = str | Mapping[str, Value]


def run(*, progress: Progress | None = None, **options: Value) -> Run:
    """Measures strategies on the same prompts, arms interleaved, and stores every raw value.

    The options are those of `specbench run --help`, with underscores: `strategy` (one or several), `model`,
    `dataset_name`, `num_prompts`, `max_concurrency`, `output_dir`, ... `progress` is told what goes on.

        run = specbench.run(strategy=["no-spec", "eagle:k=4"], dataset_name="sharegpt", num_prompts=20)
        run.table()[["tps", "speedup"]]

    An arm that fails is a row that says so. Raises ValueError naming the option, its value and what is allowed.
    Ctrl-C keeps what was measured and raises KeyboardInterrupt, which says how to go on.
    """
    from specbench.harness.experiments.run import RESUME, new_run
    from specbench.harness.run.progress import NullProgress

    from .options import asked_run, output_of, words_of

    words = words_of(options)
    config, record = asked_run(words)
    directory = new_run(config, record, output_of("run", options, words), progress or NullProgress())
    return Run(_whole(directory, RESUME))


def sweep(*, progress: Progress | None = None, **options: Value) -> Sweep:
    """Measures strategies times numbers of drafts at several loads, one run a load.

    The options are those of `specbench sweep --help`, with underscores. Errors and Ctrl-C as in `run`.

        sweep = specbench.sweep(strategy=["eagle", "ngram"], num_drafts=[1, 2, 4], max_concurrency=[1, 4, 16])
        sweep.table()
    """
    from specbench.harness.experiments.sweep import RESUME, new_sweep
    from specbench.harness.run.progress import NullProgress

    from .options import asked_sweep, output_of, words_of

    words = words_of(options)
    output = output_of("sweep", options, words)
    directory = new_sweep(*asked_sweep(words), output, progress or NullProgress(), on_point=lambda run: None)
    return Sweep(_whole(directory, RESUME))


def ab(
    a: Side,
    b: Side,
    *,
    blocks: int = 10,
    min_effect: float = 0.01,
    in_process: bool = False,
    order_seed: int = 42,
    progress: Progress | None = None,
    **options: Value,
) -> AbResult:
    """Measures two sides in interleaved blocks, on the same prompts, and judges whether B differs from A.

    A side is an arm (`"eagle:k=4"`), words of the command line (`"--sync none"`), or options of its own; the other
    options are those of `run` and hold for both. blocks: pairs of runs, 6 or more for a verdict. min_effect: the
    smallest change that matters, a fraction. in_process: both sides alternate in this process, instead of a process a
    block.

        result = specbench.ab("eagle:k=2", "eagle:k=4", num_prompts=20)
        result = specbench.ab({"sync": "single"}, {"sync": "none"}, strategy="eagle:k=4", in_process=True)

    Raises ValueError for bad input and for sides that are not comparable. Ctrl-C as in `run`.
    """
    from specbench.harness.ab.plan import AbPlan
    from specbench.harness.experiments.ab import RESUME, new_experiment
    from specbench.harness.run.progress import NullProgress

    from .options import asked_sides, output_of, words_of

    ours = {name: value for name, value in options.items() if name not in ("output_dir", "label")}
    sides, configs = asked_sides((a, b), words_of(ours))
    plan = AbPlan(sides=sides, num_blocks=blocks, min_effect=min_effect, order_seed=order_seed, in_process=in_process)
    output = output_of("ab", options, ["--a", sides[0].text, "--b", sides[1].text, *words_of(options)])
    return AbResult(Run(_whole(new_experiment(plan, configs, output, progress or NullProgress()), RESUME)))


def _whole(directory: D, resume: Resume) -> D:
    """A script must not go on after Ctrl-C as if everything was measured."""
    from specbench.harness.experiments.session import INTERRUPTED

    if directory.manifest["status"] == INTERRUPTED:
        raise KeyboardInterrupt(f"measured blocks are kept; go on with: {resume(directory.path)}")
    return directory
