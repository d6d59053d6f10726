"""Measuring from Python: a run, a sweep, an A/B experiment, with the options of the command line as keywords."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from specbench.harness.run.progress import NullProgress, Progress
from specbench.harness.spec.commands import AbOptions, SweepOptions
from specbench.harness.spec.options import RunOptions

from .options import Side, Value, read, side_text, words_of
from .results import AbResult, Run, Sweep

if TYPE_CHECKING:
    from specbench.harness.experiments.session import Directory, Resume

D = TypeVar("D", bound="Directory")


def run(options: RunOptions | None = None, *, progress: Progress | None = None, **named: Value) -> Run:
    """Measures strategies on the same prompts, arms interleaved, and stores every raw value.

    The options are those of `specbench run --help`, with underscores: `strategy` (one or several), `model`,
    `dataset_name`, `num_prompts`, `max_concurrency`, `output_dir`, ... `resume` continues a stored run.
    `progress` receives status messages.

        run = specbench.run(strategy=["no-spec", "eagle:k=4"], dataset_name="sharegpt-held-out", num_prompts=20)
        run.table()[["tps", "speedup"]]

    A failed arm becomes a row that says so. Raises ValueError naming the option, its value and what is allowed.
    Ctrl-C keeps all measurements and raises KeyboardInterrupt, which says how to resume.
    """
    from specbench.harness.experiments.run import RESUME, runs

    with RunOptions.as_written(named):
        asked, words = read(RunOptions, options, named)
        if len(asked.sizes) > 1:
            several = f"{asked.batch_sizes!r} makes several runs"
            raise ValueError(f"batch_sizes: {several}; measure one at a time, or use sweep")
        (directory,) = runs(asked, ["specbench", "run", *words], progress or NullProgress())
    return Run(_whole(directory, RESUME), asked.slos)


def sweep(options: SweepOptions | None = None, *, progress: Progress | None = None, **named: Value) -> Sweep:
    """Measures strategies times numbers of drafts at several loads, with one run per load.

    The options are those of `specbench sweep --help`, with underscores. Errors, `resume` and Ctrl-C as in `run`.

        sweep = specbench.sweep(strategy=["eagle", "ngram"], num_drafts=[1, 2, 4], max_concurrency=[1, 4, 16])
        sweep.table()
    """
    from specbench.harness.experiments.sweep import RESUME
    from specbench.harness.experiments.sweep import sweep as measured

    with SweepOptions.as_written(named):
        asked, words = read(SweepOptions, options, named)
        argv = ["specbench", "sweep", *words]
        found = measured(asked, argv, progress or NullProgress(), on_point=lambda run: None)
    return Sweep(_whole(found, RESUME), asked.slos)


def ab(a: Side, b: Side, *, progress: Progress | None = None, **named: Value) -> AbResult:
    """Measures two sides in interleaved blocks, on the same prompts, and judges whether B differs from A.

    A side is an arm (`"eagle:k=4"`), words of the command line (`"--sync none"`, `"ref:main"`), or a dictionary of
    options; the other options are those of `specbench ab --help` (`blocks`, `min_effect`, `in_process`, ...) and of a
    run, which apply to both sides.

        result = specbench.ab("eagle:k=2", "eagle:k=4", num_prompts=20)
        result = specbench.ab({"sync": "single"}, {"sync": "none"}, strategy="eagle:k=4", in_process=True)

    Raises ValueError for bad input and for sides that are not comparable. Ctrl-C as in `run`.
    """
    from specbench.harness.experiments.ab import RESUME, experiment

    schema = AbOptions.schema()
    # A side without words runs what both have in common.
    own: dict[str, Value] = {name: text for name, side in (("a", a), ("b", b)) if (text := side_text(side))}
    own |= {name: v for name, v in named.items() if name in schema}
    asked, words = read(AbOptions, None, own)
    common = words_of({name: v for name, v in named.items() if name not in schema}, RunOptions.schema())
    argv = ["specbench", "ab", *words, *common]
    return AbResult(Run(_whole(experiment(asked, common, argv, progress or NullProgress()), RESUME)))


def _whole(directory: D, resume: Resume) -> D:
    """Raises KeyboardInterrupt: after Ctrl-C, a script must not continue as if everything was measured."""
    from specbench.harness.experiments.session import INTERRUPTED

    if directory.record.status == INTERRUPTED:
        raise KeyboardInterrupt(f"measured blocks are kept; resume with: {resume(directory.path)}")
    return directory
