"""`specbench accuracy`: task accuracy of strategies on the same items, by lm-eval."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specbench.harness.spec.commands import AccuracyOptions

from .derived import takes_options, typed_command
from .output import end, print_json, print_tables, say_if_interrupted

_BESIDE_SAMPLES = frozenset({"format", "quiet", "progress"})


@takes_options
def accuracy(
    options: AccuracyOptions,
    samples: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="A.jsonl B.jsonl", help="Pair two files from lm-eval's --log_samples; nothing is run."),
    ] = None,
) -> None:
    """Score every arm on the same items with lm-eval, and compare the arms item by item.

    Outputs are stored in runs/<UTC>-<label>-<id>/ as they arrive; after Ctrl-C, --resume continues.

    With --samples, two files that lm-eval wrote with --log_samples, for any model and engine, are paired instead. Items
    are paired by the hashes of their documents; those that cannot be paired are counted and listed.

    Exit code: 0 all arms scored or files paired, 1 an arm failed, 2 bad input, 130 interrupted.

    Examples:

      specbench accuracy -s no-spec -s ngram:k=4 --tasks gsm8k --num_fewshot 5 --limit 500

      specbench accuracy -s no-spec -s eagle:k=4 --tasks gsm8k:200,my_task:50 --include-path my-tasks/

      specbench accuracy --samples before/samples_gsm8k_DATE.jsonl after/samples_gsm8k_DATE.jsonl
    """
    if samples is not None:
        _pair(samples, options)
        return
    from specbench.harness.quality.lm_evaluation.tasks import require_lm_eval

    require_lm_eval()
    from specbench.harness.experiments.accuracy import RESUME, evaluation, exit_code
    from specbench.reports.run.accuracy_table import accuracy_tables
    from specbench.reports.run.json_report import json_report
    from specbench.reports.run.report import write_reports
    from specbench.reports.run.view import view_run

    from .progress import open_progress

    with open_progress(options, "accuracy") as progress:
        directory = evaluation(options, typed_command(), progress)
    write_reports(directory)
    view = view_run(directory)
    if options.format == "json":
        print_json(json_report(view))
    else:
        print_tables(*accuracy_tables(view))
        typer.echo(f"run directory: {directory.path}")
    say_if_interrupted(directory.record.status, directory.path, RESUME, kept="outputs")
    end(exit_code(directory))


def _pair(paths: tuple[Path, Path], options: AccuracyOptions) -> None:
    from specbench.harness.judge.lm_eval_samples import read_samples
    from specbench.harness.judge.samples_verdict import pair_samples
    from specbench.reports.experiments.samples_table import samples_table

    if given := [options.schema()[name].flag for name in sorted(options.given - _BESIDE_SAMPLES)]:
        raise ValueError(f"samples: both files are only read; drop {', '.join(given)}")
    found = pair_samples(*map(read_samples, paths))
    if options.format == "json":
        print_json(found)
    else:
        print_tables(samples_table(found))
