"""`specbench accuracy`: task accuracy of strategies on the same items, by lm-eval."""

from __future__ import annotations

import typer

from specbench.harness.spec.commands import AccuracyOptions

from .derived import takes_options, typed_command
from .output import end, print_tables, say_if_interrupted


@takes_options
def accuracy(options: AccuracyOptions) -> None:
    """Score every arm on the same items with lm-eval, and compare the arms item by item.

    Outputs are stored in runs/<UTC>-<label>-<id>/ as they arrive; after Ctrl-C, --resume continues.

    Exit code: 0 all arms scored, 1 an arm failed, 2 bad input, 130 interrupted.

    Examples:

      specbench accuracy -s no-spec -s ngram:k=4 --tasks gsm8k --num_fewshot 5 --limit 500

      specbench accuracy -s no-spec -s eagle:k=4 --tasks gsm8k:200,my_task:50 --include-path my-tasks/
    """
    from specbench.harness.quality.lm_evaluation.tasks import require_lm_eval

    require_lm_eval()
    from specbench.harness.experiments.accuracy import RESUME, evaluation, exit_code
    from specbench.reports.run.accuracy_table import accuracy_tables
    from specbench.reports.run.report import write_reports
    from specbench.reports.run.view import view_run

    from .progress import RunProgress

    with RunProgress(options.quiet) as progress:
        directory = evaluation(options, typed_command(), progress)
    write_reports(directory)
    print_tables(*accuracy_tables(view_run(directory)))
    typer.echo(f"run directory: {directory.path}")
    say_if_interrupted(directory.record.status, directory.path, RESUME, kept="outputs")
    end(exit_code(directory))
