"""Documents and tables for a terminal (rich), or as plain lines of any width for files and pipes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from specbench.reports.document import Cell, Document, Section, Table, column_width, name_width, text_columns


def print_document(document: Document, console: Console) -> None:
    """Plain lines where the console is not a terminal."""
    if not console.is_terminal:
        console.file.write(plain_document(document))
        return
    console.print(Text(document.title, style="bold"))
    for warning in document.warnings:
        console.print(Text(f"! {warning}", style="bold yellow"))
    for section in document.sections:
        console.print(Text(f"\n{section.title}", style="bold"))
        for line in _lines(section):
            console.print(Text(line))
        for table in section.tables:
            print_result(table, console)
    for part in document.parts:
        console.print()
        print_document(part, console)


def print_result(table: Table, console: Console) -> None:
    """One table, in the form that suits the console."""
    if console.is_terminal:
        console.print(rich_result(table, console.width))
    else:
        console.file.write(("\n" if table.title else "") + plain_result(table))


def rich_result(table: Table, width: int) -> RenderableType:
    """Columns that do not fit into `width` beside each other are in several tables, one below the other."""
    title = [Text(), Text(table.title, style="italic")] if table.title else []
    parts = [_rich_table(table, columns) for columns in _groups(table, width)]
    return Group(*title, *parts, Text(), *(Text(f"* {note}", style="dim") for note in table.notes))


def plain_document(document: Document) -> str:
    """Text without colours; tables as wide as they are."""
    lines = [document.title, "=" * len(document.title), *(f"! {warning}" for warning in document.warnings)]
    for section in document.sections:
        lines += ["", section.title, "-" * len(section.title), *_lines(section)]
        lines += [f"\n{plain_result(table).rstrip()}" for table in section.tables]
    return "\n".join([*lines, ""]) + "".join("\n\n" + plain_document(part) for part in document.parts)


def plain_result(table: Table) -> str:
    """Title, aligned columns, a line for each note."""
    title = [table.title] if table.title else []
    notes = [f"* {_one_line(note)}" for note in table.notes]
    return "\n".join([*title, _plain_table(table.headers, table.rows), "", *notes, ""])


def _plain_table(headers: Sequence[str], rows: Sequence[Sequence[str | Cell]]) -> str:
    """Left-aligned columns, two blanks apart, headers underlined."""
    cells = [[_one_line(str(cell)) for cell in row] for row in (headers, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _lines(section: Section) -> Iterator[str]:
    yield from section.sentences
    for command in section.commands:
        yield f"{command.name}: {command.text}"
    for fact in section.facts:
        yield f"{fact.name}: {fact.value}{f' ({fact.note})' if fact.note else ''}"
    for drawing in section.timelines:
        yield f"{drawing.title}: drawn in the HTML report and in the trace for Perfetto."


def _rich_table(table: Table, columns: Sequence[int]) -> RichTable:
    shown = RichTable(show_edge=False, pad_edge=False)
    words = {0, *text_columns(table.rows)}
    for i in columns:
        shown.add_column(table.headers[i], overflow="fold", justify="left" if i in words else "right")
    for row in table.rows:
        shown.add_row(*(Text(str(row[i])) for i in columns))  # Text: labels may hold rich markup
    return shown


def _groups(table: Table, width: int) -> list[list[int]]:
    """Columns in order, in as few groups as fit beside the first, which folds at two fifths of the width."""
    widths = [column_width(table, i) for i in range(len(table.headers))]
    if sum(widths) <= width:
        return [list(range(len(widths)))]
    space = width - name_width(table, width)
    groups: list[list[int]] = [[0]]
    for i in range(1, len(widths)):
        if len(groups[-1]) > 1 and sum(widths[j] for j in (*groups[-1][1:], i)) > space:
            groups.append([0])
        groups[-1].append(i)
    return groups


def _one_line(text: str) -> str:
    return " ".join(text.split())
