"""A report before it has a form: titles, sentences, figures, commands, tables, timelines; whoever prints them."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.reports.profile.timeline import Timeline
from specbench.reports.run.result_table import ResultTable


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """One figure that is read at a glance; `note` stands small below it."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A text that must be shown literally, to be copied."""

    name: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """In this order: sentences, commands, facts, timelines, tables; empty ones are left out."""

    title: str
    sentences: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()
    facts: tuple[Fact, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    tables: tuple[ResultTable, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """`warnings` stand above everything else; `parts` are documents of their own, one heading level deeper."""

    title: str
    sections: tuple[Section, ...]
    warnings: tuple[str, ...] = ()
    parts: tuple[Document, ...] = ()
