"""`specbench ab`: is B faster than A, by how much, and how sure is that?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from specbench.harness.exit_codes import ExitCode
from specbench.harness.spec.commands import AbOptions

from .derived import takes_options, typed_command
from .output import end, print_how, print_json, print_tables, print_where, say_if_interrupted

if TYPE_CHECKING:
    from rich.console import Console

    from specbench.harness.store.ab_judgement import Judgement
    from specbench.harness.store.noise_record import NoiseFloor
    from specbench.harness.store.run_directory import RunDirectory
    from specbench.reports.run.view import RunView


@takes_options
def ab(options: AbOptions, words: list[str]) -> None:
    """Measure two sides in interleaved blocks on the same prompts, and test whether B differs from A.

    All other options are those of `specbench run` and apply to both sides; -A and -B add to them. A block runs each
    side once, back to back, in random order, each in its own process unless --in-process. Step time, tokens per step
    and TPOT get a verdict (improved, regressed, equivalent, or inconclusive with the number of blocks still needed), a
    95% interval and the minimum detectable effect (MDE). If one improves and another regresses, as with more drafts
    per step, the result is mixed and TPOT decides. The number of blocks is fixed beforehand: stopping as soon as
    something is significant inflates false positives.

    Exit code: 0 improved or equivalent (also inconclusive, unless --strict), 1 regressed (mixed: by TPOT alone), 2 bad
    input, 3 inconclusive with --strict, 4 no valid verdict (fewer than 6 blocks count, more than 20% rejected, a change
    between identical sides, mixed without a TPOT), 5 the sides are not comparable, 6 outputs differ too often
    (--min-same-output), 130 interrupted.

    Examples:

      specbench ab -A eagle:k=2 -B eagle:k=4 --dataset-name sharegpt-held-out --num-prompts 20

      specbench ab -A "--state-update torch" -B "--state-update fused" -s eagle:k=4 --in-process --blocks 20

      specbench ab -A ref:main -B ref:my-branch -s eagle:k=4 --blocks 10 --strict

      specbench ab -A "--engine-ref main" -B "--engine-ref my-branch" -s vllm/eagle:k=4 --engine-python VENV
    """
    from specbench.harness.experiments.ab import RESUME, experiment
    from specbench.harness.experiments.session import INTERRUPTED
    from specbench.harness.judge.ab_verdict import exit_code
    from specbench.reports.run.view import view_run

    from .progress import open_progress

    with open_progress(options, "ab") as progress:
        directory = experiment(options, words, typed_command(), progress)
    record, status = judge_and_write(directory), directory.record.status
    if options.format == "json":
        print_json(record)
    else:
        print_verdict(record, view_run(directory))
        print_where(directory.path)
    say_if_interrupted(status, directory.path, RESUME)
    end(ExitCode.INTERRUPTED if status == INTERRUPTED else exit_code(record, strict=options.strict))


def print_verdict(record: Judgement, view: RunView) -> None:
    """Prints the answer, the sides, their figures and how to repeat the experiment, on one screen."""
    from rich.console import Console

    from specbench.harness.judge.rerun import certify_command
    from specbench.reports.experiments.ab_brief import ab_brief_table, ab_unequal
    from specbench.reports.run.brief import about
    from specbench.reports.terminal import print_result

    console = Console()
    _print_answer(record, console)
    table = ab_brief_table(record, console.width if console.is_terminal else None)
    print_result(replace(table, notes=(*table.notes, "; ".join(about(view)))), console)
    if why := ab_unequal(record):
        print_how(f"{why}: {certify_command(view.record) or 'certify each side'}")
    print_how(view.record.command)


def show_experiment(view: RunView, directory: RunDirectory, format: str) -> None:
    """Judges a stored experiment anew and prints it; for an A/A, the noise floor. `format`: table, or wide: every
    figure and note."""
    from rich.console import Console

    from specbench.harness.judge.ab_verdict import judge
    from specbench.harness.judge.noise import noise_floor
    from specbench.reports.experiments.verdict_table import verdict_table
    from specbench.reports.run.comparison import comparison_table

    record = judge(directory)
    if format == "wide":
        print_tables(verdict_table(record), comparison_table(view))
    elif record.is_aa and record.num_kept > 1:  # a single block has no spread
        _print_answer(record, Console())
        print_noise(noise_floor(record, directory.record))
    else:
        print_verdict(record, view)


def print_noise(floor: NoiseFloor) -> None:
    """Prints how small a change this machine can show: a sentence and a table."""
    from rich.console import Console

    from specbench.reports.experiments.noise_table import noise_answer, noise_table
    from specbench.reports.terminal import sentence_lines

    typer.secho(sentence_lines(noise_answer(floor), Console()), bold=True)
    print_tables(noise_table(floor))


def _print_answer(record: Judgement, console: Console) -> None:
    from specbench.reports.experiments.ab_brief import ab_answer, ab_sides
    from specbench.reports.terminal import sentence_lines

    typer.secho(sentence_lines(ab_answer(record), console), bold=True)
    for name, text in ab_sides(record).items():
        typer.echo(sentence_lines(text, console, f"{name:4}  "))


def judge_and_write(directory: RunDirectory) -> Judgement:
    """Judges a stored experiment; writes ab.json, ab.md and the reports of every run."""
    from specbench.harness.judge.ab_verdict import judge
    from specbench.harness.store.ab_judgement import AB_FILE
    from specbench.harness.store.codec import write_document
    from specbench.harness.store.files import write_text
    from specbench.reports.experiments.verdict_table import verdict_table
    from specbench.reports.markdown import markdown_result
    from specbench.reports.run.report import write_reports

    record = judge(directory)
    write_document(directory.path / AB_FILE, record)
    write_text(directory.path / "ab.md", markdown_result(verdict_table(record)))
    write_reports(directory)
    return record
