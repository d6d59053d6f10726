"""The format-independent model of a report, for the terminal, Markdown and HTML pages, including the site."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # so that a plain table does not import pandas
    from specbench.reports.charts.chart import Chart

_Item = TypeVar("_Item")
NOTHING = "-"  # a missing value in a table
_FIGURE = re.compile(rf"[<>+-]*[\d.,]+(e[+-]?\d+)?(%|x| pt)?|{NOTHING}|")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A link or a badge. `href`: a page of the site, relative to its root. `tone`: good, bad, open or empty; the text
    says the same in words. `order`: the sort key of the column, if it is not the text."""

    text: str
    href: str = ""
    tone: str = ""
    order: float | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows of text; the first column is a name. `notes` are printed below, one per line. `spare`: columns that a narrow
    terminal may drop, in that order. Only pages of the site have `Cell`s."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    notes: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()


def table_of(
    title: str,
    columns: Mapping[str, Callable[[_Item], str | Cell]],
    items: Iterable[_Item],
    notes: Iterable[str] = (),
    spare: tuple[str, ...] = (),
) -> Table:
    """A row per item. `columns`: for each header, the function that gives the cell."""
    rows = tuple(tuple(cell(item) for cell in columns.values()) for item in items)
    return Table(title=title, headers=tuple(columns), rows=rows, notes=tuple(notes), spare=spare)


def without(table: Table, header: str) -> Table:
    """The table without a column."""
    kept = [i for i, name in enumerate(table.headers) if name != header]
    rows = tuple(tuple(row[i] for i in kept) for row in table.rows)
    return replace(table, headers=tuple(table.headers[i] for i in kept), rows=rows)


def with_rows(*tables: Table) -> tuple[Table, ...]:
    """The tables that are not empty."""
    return tuple(table for table in tables if table.rows)


GAP = 3  # characters between two columns in a terminal
_NAME = 25


def name_width(table: Table, width: int) -> int:
    """Width of the first column: it folds at two fifths of the width, but never for names up to 25 characters."""
    return min(column_width(table, 0), max(width * 2 // 5, _NAME + GAP))


def column_width(table: Table, i: int) -> int:
    return GAP + max(len(str(row[i])) for row in (table.headers, *table.rows))


def fitting(table: Table, width: int | None) -> Table:
    """As many of the first columns as fit into `width` characters; all of them without a limit."""
    if width is None:
        return table
    ends = accumulate([name_width(table, width), *(column_width(table, i) for i in range(1, len(table.headers)))])
    num = max(2, sum(end - GAP <= width for end in ends))
    return replace(table, headers=table.headers[:num], rows=tuple(row[:num] for row in table.rows))


def text_columns(rows: Sequence[Sequence[str | Cell]]) -> set[int]:
    """Columns of words, which are left-aligned; figures are right-aligned."""
    return {i for row in rows for i, cell in enumerate(row) if not _FIGURE.fullmatch(str(cell))}


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """A figure to read at a glance, with a short note below it."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """Text shown verbatim, to be copied."""

    name: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rect:
    """Of a timeline, in pixels; `title` is shown while the pointer rests on it."""

    x: float
    y: float
    width: float
    height: float
    phase: str
    is_odd_step: bool
    title: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Label:
    """Of a timeline, in pixels."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """A drawing of `width` x `height` pixels, times in `unit`. `phases`: those that occur, in the order of a round;
    `runs`: the same bars as rows of a table: where, phase, start, end, time covered by bars, number of bars."""

    title: str
    width: float
    height: float
    rects: tuple[Rect, ...]
    labels: tuple[Label, ...]
    lanes: tuple[Label, ...]
    ticks: tuple[Label, ...]
    phases: tuple[str, ...]
    notes: tuple[str, ...]
    unit: str
    runs: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """Blocks in the order of the fields; empty ones are left out. Badges, links and charts appear on pages only, and
    only there do folded sections start closed. `anchor`: the section's name in the page's address."""

    title: str
    anchor: str = ""
    folded: bool = False
    badge: Cell | None = None
    links: tuple[Cell, ...] = ()
    sentences: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()
    facts: tuple[Fact, ...] = ()
    charts: tuple[Chart, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    tables: tuple[Table, ...] = ()


def filled(sections: Iterable[Section]) -> tuple[Section, ...]:
    """Drops empty charts and tables, and sections that then have nothing else, because a heading promises content.
    Notes of an empty table are kept if the section has other content."""
    kept = []
    for section in sections:
        charts = tuple(chart for chart in section.charts if len(chart.frame))
        tables = tuple(table for table in section.tables if table.rows or table.notes)
        has_figures = bool(charts or any(table.rows for table in tables))
        has_words = bool(section.sentences or section.commands or section.facts or section.timelines)
        leads_on = bool(section.links or section.badge) and not (section.charts or section.tables)
        if has_figures or has_words or leads_on:
            kept.append(replace(section, charts=charts, tables=tables))
    return tuple(kept)


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """`lead`: the question that the document answers. `warnings` come before the sections. `parts`: nested documents,
    one heading level deeper. `back`: on pages only, links to what it belongs to, by addresses relative to its own."""

    title: str
    sections: tuple[Section, ...]
    lead: str = ""
    warnings: tuple[str, ...] = ()
    parts: tuple[Document, ...] = ()
    back: tuple[Cell, ...] = ()
