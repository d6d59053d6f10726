"""A page of the site before it is HTML. Texts come from runs of strangers and are escaped when the page is made."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.reports.charts.chart import Chart
from specbench.reports.document import Command, Fact, Table
from specbench.reports.profile.timeline import Timeline


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """`href`: a page of the site, relative to its root. `tone`: good, bad, open or empty; the word says it too."""

    text: str
    href: str = ""
    tone: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkTable:
    """A table whose cells lead somewhere or are badges."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """In this order: badge, links, sentences, facts, commands, charts, timelines, tables; empty ones are left out."""

    title: str
    badge: Cell | None = None
    links: tuple[Cell, ...] = ()
    sentences: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    commands: tuple[Command, ...] = ()
    charts: tuple[Chart, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    link_tables: tuple[LinkTable, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """`path`: within the site, with `/`. `lead`: what the page answers."""

    path: str
    title: str
    sections: tuple[Section, ...]
    lead: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def root(self) -> str:
        """From the page to the root of the site."""
        return "../" * self.path.count("/")


def plain_cells(*texts: str) -> tuple[Cell, ...]:
    return tuple(Cell(text=text) for text in texts)
