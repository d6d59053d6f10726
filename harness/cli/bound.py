"""``specbench bound``: how much better choices of drafts would gain, from recorded rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specbench.harness.store.writing import writing

from .output import format_option, print_json, print_tables


def bound(
    run: Annotated[Path, typer.Argument(help="A run with no-spec and chains, or a sweep of them.", metavar="RUN")],
    format: Annotated[str, format_option("table", "md", "json")] = "table",
    write: Annotated[
        bool, typer.Option("--write", help="Also write bound.json, bound.md and plots/bound.png into the run.")
    ] = False,
) -> None:
    """Compute the speed that ideal choices would reach: the best number of drafts for all rounds, for each request and
    for each round, two drafters together, and perfect drafts; and how far the measured arms are from these.

    Nothing is measured: recorded rounds show what other rounds would have accepted, and measured arms what rounds
    cost. What no recorded round shows is bounded. A sweep gets a table for each load. The more arms of one drafter a
    run has (eagle:k=1, eagle:k=2, eagle:k=4), the tighter the bounds.

    Exit code: 0; 2 bad input, or a run whose rounds are not sufficient.

    Examples:

      specbench run -s no-spec -s ngram -s eagle:k=1 -s eagle:k=4 --num-prompts 8

      specbench bound runs/20260102T030405Z-run-0a1b2c3d --write
    """
    from rich.console import Console

    from specbench.harness.judge.bound import bounds
    from specbench.harness.run.track import track
    from specbench.reports.experiments.bound_table import bound_answer, bound_table, load_table, write_bound
    from specbench.reports.markdown import escape_markdown, markdown_result
    from specbench.reports.terminal import sentence_lines

    from .progress import RunProgress

    with RunProgress(quiet=False) as progress:
        found = bounds(run, lambda runs: track(runs, "run", progress))
    if format == "json":
        print_json([one for _, one in found])
    tables = [(bound_answer(one), bound_table(one)) for _, one in found]
    if len(found) > 1:
        tables.append(("", load_table([one for _, one in found])))
    for answer, table in tables if format != "json" else ():
        if format == "md":
            typer.echo(f"{escape_markdown(answer)}\n\n{markdown_result(table)}")
        else:
            typer.echo(sentence_lines(answer, Console()))
            print_tables(table)
    for directory, one in found if write else ():
        with writing("write", directory.path):
            written = write_bound(directory.path, one)
        for path in written:
            typer.echo(f"wrote {path}", err=True)
