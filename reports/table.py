"""The comparison table: for a terminal (rich), for a file or a pipe (plain), for a pull request (Markdown)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from specbench.reports.cells import HEADERS, NOTHING, comparison
from specbench.reports.run.accuracy_table import accuracy_tables
from specbench.reports.run.factor_table import factor_table
from specbench.reports.run.result_table import ResultTable
from specbench.reports.run.seed_table import seed_table
from specbench.reports.run.view import RunView, conventions, footnotes

_MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]|~])")


def print_comparison(view: RunView, console: Console) -> None:
    """The table and what stands below it; without a terminal the plain form, whose width nobody cuts. Then the table
    that the run's recipe or base asks for."""
    if console.is_terminal:
        console.print(rich_comparison(view, console.width))
    else:
        console.file.write(plain_comparison(view))
    for table in asked_tables(view):
        print_result(table, console)


def print_joined(views: Sequence[RunView], console: Console) -> None:
    """The table over several batch sizes, where the runs are of one base."""
    table = factor_table(views)
    if table is not None:
        print_result(table, console)


def asked_tables(view: RunView) -> list[ResultTable]:
    """Tables beyond the comparison that the run was made for: a recipe's, a base's."""
    tables = [table for table in (seed_table(view), factor_table([view])) if table is not None]
    return [*tables, *accuracy_tables(view)]


def print_result(table: ResultTable, console: Console) -> None:
    """One finished table, in the form that suits the console."""
    if console.is_terminal:
        shown = Table(title=table.title, title_justify="left", show_edge=False, pad_edge=False)
        for number, header in enumerate(table.headers):
            shown.add_column(header, overflow="fold", justify="right" if number else "left")
        for row in table.rows:
            shown.add_row(*map(Text, row))
        console.print(Group(Text(), shown, Text(), *(Text(f"* {note}", style="dim") for note in table.notes)))
    else:
        console.file.write("\n" + plain_result(table))


def plain_result(table: ResultTable) -> str:
    """Title, aligned columns, a line for each note."""
    return "\n".join(
        [table.title, plain_table(table.headers, table.rows), "", *(f"* {_one_line(note)}" for note in table.notes), ""]
    )


def markdown_result(table: ResultTable) -> str:
    """The same as GitHub Markdown."""
    notes = [f"* {escape_markdown(note)}" for note in table.notes]
    title = f"## {escape_markdown(table.title)}"
    return "\n".join([title, "", markdown_table(table.headers, table.rows), "", *notes]) + "\n"


def rich_comparison(view: RunView, width: int) -> RenderableType:
    """One table where it fits into `width` columns, else its columns in several tables one below the other."""
    headers, rows = comparison(view)
    fits = sum(_width(header, rows) for header in headers) <= width
    groups = [headers[1:]] if fits else _groups(headers[1:-1], rows, width)
    parts: list[RenderableType] = [_rich_table((headers[0], *group), rows) for group in groups]
    if not fits:
        marked = [row for row in rows if row["marks"] != NOTHING]
        parts += [Text(f"{row['strategy']}: {row['marks']}", style="yellow") for row in marked]
    parts += [Text(), *(Text(line, style="dim") for line in conventions(view))]
    parts += [Text.assemble((f"{name}: ", "bold dim"), (value, "dim")) for name, value in footnotes(view)]
    return Group(*parts)


def plain_comparison(view: RunView) -> str:
    """Columns aligned with blanks, then the notes."""
    headers, rows = comparison(view)
    lines = plain_table(headers, [[row[h] for h in headers] for row in rows])
    notes = conventions(view) + [f"{name}: {value}" for name, value in footnotes(view)]
    return "\n".join([lines, "", *(_one_line(note) for note in notes)]) + "\n"


def markdown_comparison(view: RunView) -> str:
    """The table as GitHub Markdown, then the notes; whatever labels and errors hold is shown literally."""
    headers, rows = comparison(view)
    table = markdown_table(headers, [[row[h] for h in headers] for row in rows])
    notes = [f"* {escape_markdown(line)}" for line in conventions(view)]
    notes += [f"* {name}: {_code(value)}" for name, value in footnotes(view)]
    return "\n".join([table, "", *notes]) + "\n"


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns, two blanks apart, headers underlined."""
    cells = [[_one_line(cell) for cell in row] for row in (headers, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A GitHub table: first column left-aligned, the others right-aligned, cells escaped."""
    lines = [headers, [":---", *["---:"] * (len(headers) - 1)]]
    body = [[escape_markdown(cell) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in [*lines, *body])


def escape_markdown(text: str) -> str:
    """`text` so that GitHub shows it literally, also inside a table: no markup, no HTML, no new line."""
    safe = _one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN_SPECIAL.sub(r"\\\1", safe)


def _rich_table(headers: Sequence[str], rows: Sequence[dict[str, str]]) -> Table:
    table = Table(header_style="bold", show_edge=False, pad_edge=False)
    for header in headers:
        foldable = header in (HEADERS[0], HEADERS[-1])
        justify: Literal["left", "right"] = "left" if foldable else "right"
        table.add_column(header, justify=justify, overflow="fold", no_wrap=not foldable)
    for row in rows:
        table.add_row(*(Text(row[header]) for header in headers))  # Text: labels may hold rich markup
    return table


def _width(header: str, rows: Sequence[dict[str, str]]) -> int:
    """Width of a column with its border."""
    return 3 + max([len(header), *(len(row[header]) for row in rows)])


def _groups(headers: Sequence[str], rows: Sequence[dict[str, str]], width: int) -> list[list[str]]:
    """Columns in order, in as few groups as fit beside the labels; long labels fold at two fifths of the width."""
    space = width - min(_width(HEADERS[0], rows), width * 2 // 5)
    groups: list[list[str]] = [[]]
    for header in headers:
        if groups[-1] and sum(_width(h, rows) for h in (*groups[-1], header)) > space:
            groups.append([])
        groups[-1].append(header)
    return groups


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _code(text: str) -> str:
    """An inline code span that may itself hold backticks (CommonMark: a longer fence)."""
    line = _one_line(text)
    longest = max((len(run) for run in re.findall(r"`+", line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"
