"""Documents and tables for a terminal (rich), or as plain lines of any width for files and pipes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from specbench.reports.document import (
    GAP,
    NOTHING,
    Cell,
    Document,
    Section,
    Table,
    column_width,
    name_width,
    text_columns,
    without,
)
from specbench.reports.fold import folded, folded_command, least_width


def print_document(document: Document, console: Console) -> None:
    """Plain lines if the console is not a terminal."""
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
    """If the columns do not fit into `width`, cells are folded, then spare columns are dropped, and finally the table
    is split into several, one below the other."""
    table = _narrowed(table, width)
    title = [Text(), *(Text(line, style="italic") for line in folded(table.title, width))] if table.title else []
    parts = [_rich_table(table, columns) for columns in _groups(table, width)]
    notes = (Text("\n".join(folded(f"* {note}", width, "  ")), style="dim") for note in table.notes)
    return Group(*title, *parts, *([Text()] if title else []), *notes)


def _narrowed(table: Table, width: int) -> Table:
    """Drops empty columns and then spare columns, as many as needed to get one table; a note names them."""
    silent = [h for i, h in enumerate(table.headers) if i and {str(row[i]) for row in table.rows} <= {NOTHING}]
    left_out = []
    for name in (*silent, *table.spare) if table.spare else ():
        if len(_groups(table, width)) == 1:
            break
        if name in table.headers:
            table = without(table, name)
            left_out.append(name)
    if not left_out:
        return table
    return replace(table, notes=(*table.notes, f"not in {width} characters: {', '.join(left_out)}"))


def sentence_lines(text: str, console: Console, lead: str = "") -> str:
    """In lines that fit after `lead`; one line if the console is not a terminal."""
    lines = folded(text, console.width - len(lead)) if console.is_terminal else [text]
    return lead + f"\n{' ' * len(lead)}".join(lines)


def command_lines(text: str, console: Console) -> str:
    """The same for a command: the lines can be pasted."""
    return "\n".join(folded_command(text, console.width)) if console.is_terminal else text


def plain_document(document: Document) -> str:
    """Text without colours; tables in full width."""
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


def _rich_table(table: Table, columns: Mapping[int, int]) -> RichTable:
    """`columns`: those that are shown, with their widths."""
    shown = RichTable(show_edge=False, pad_edge=False)
    words = {0, *text_columns(table.rows)}
    for i, width in columns.items():
        header = "\n".join(folded(table.headers[i], width))
        shown.add_column(Text(header), justify="left" if i in words else "right", width=width, overflow="fold")
    for row in table.rows:  # Text: labels may hold rich markup
        shown.add_row(*(Text("\n".join(folded(str(row[i]), width))) for i, width in columns.items()))
    return shown


def _groups(table: Table, width: int) -> list[dict[int, int]]:
    """Columns in order with their widths, in as few groups as fit next to the columns that identify the rows. The first
    column folds at two fifths of the width; cells fold only if that saves a group."""
    whole = [column_width(table, i) for i in range(len(table.headers))]
    if sum(whole) - GAP <= width:
        return [{i: w - GAP for i, w in enumerate(whole)}]
    name, keys = name_width(table, width), _keys(table)
    least = [name, *(GAP + _least(table, i) for i in range(1, len(whole)))]
    beside, folding = (_split(widths, keys, width + GAP) for widths in ([name, *whole[1:]], least))
    groups = folding if len(folding) < len(beside) else beside
    return [_shared(group, whole, least, width + GAP) for group in groups]


def _keys(table: Table) -> list[int]:
    """The first column, and one more if two rows have the same name."""

    def tells_apart(*columns: int) -> bool:
        return len({tuple(str(row[i]) for i in columns) for row in table.rows}) == len(table.rows)

    if tells_apart(0):
        return [0]
    return next(([0, i] for i in range(1, len(table.headers)) if tells_apart(0, i)), [0, 1])


def _least(table: Table, i: int) -> int:
    """Headers fold at every blank; cells keep a readable width."""
    return max(max(map(len, table.headers[i].split()), default=0), *(least_width(str(row[i])) for row in table.rows), 1)


def _split(widths: Sequence[int], keys: Sequence[int], space: int) -> list[list[int]]:
    groups = [list(keys)]
    for i in range(len(widths)):
        if i in keys:
            continue
        if len(groups[-1]) > len(keys) and sum(widths[j] for j in (*groups[-1], i)) > space:
            groups.append(list(keys))
        groups[-1].append(i)
    return [sorted(group) for group in groups]


def _shared(group: Sequence[int], whole: Sequence[int], least: Sequence[int], space: int) -> dict[int, int]:
    """The widths of a group's columns: the minimum widths, then as many full widths as the remaining space allows, the
    first column last."""
    widths, left = {i: least[i] for i in group}, space - sum(least[i] for i in group)
    if left < 0:  # a word that is wider than its space is broken
        widest = max(group, key=least.__getitem__)
        widths[widest] = max(widths[widest] + left, GAP + 1)
    for i in sorted(group, key=lambda i: (i == 0, whole[i] - least[i])):
        more = max(0, min(left, whole[i] - least[i]))
        widths[i] += more
        left -= more
    return {i: w - GAP for i, w in widths.items()}


def _one_line(text: str) -> str:
    return " ".join(text.split())
