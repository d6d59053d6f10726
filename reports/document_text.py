"""A document for a terminal or a pipe, and as GitHub Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from specbench.reports.document import Document, Section
from specbench.reports.run.result_table import ResultTable
from specbench.reports.table import escape_markdown, markdown_table, plain_result, print_result


def print_document(document: Document, console: Console) -> None:
    """Colours and folded columns on a terminal, plain lines elsewhere."""
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


def plain_document(document: Document) -> str:
    """Text without colours; tables as wide as they are."""
    lines = [document.title, "=" * len(document.title), *(f"! {warning}" for warning in document.warnings)]
    for section in document.sections:
        lines += ["", section.title, "-" * len(section.title), *_lines(section)]
        lines += [f"\n{plain_result(table).rstrip()}" for table in section.tables]
    return "\n".join([*lines, ""]) + "".join("\n\n" + plain_document(part) for part in document.parts)


def markdown_document(document: Document, level: int = 1) -> str:
    """Everything from a trace is shown literally: no markup, no HTML of its own."""
    parts = [f"{'#' * level} {escape_markdown(document.title)}"]
    parts += [f"> **{escape_markdown(warning)}**" for warning in document.warnings]
    for section in document.sections:
        parts += [f"{'#' * (level + 1)} {escape_markdown(section.title)}", *_markdown_blocks(section, level + 2)]
    parts += [markdown_document(part, level + 1).rstrip() for part in document.parts]
    return "\n\n".join(parts) + "\n"


def _lines(section: Section) -> Iterator[str]:
    yield from section.sentences
    for command in section.commands:
        yield f"{command.name}: {command.text}"
    for fact in section.facts:
        yield f"{fact.name}: {fact.value}{f' ({fact.note})' if fact.note else ''}"
    yield from _drawn_elsewhere(section)


def _drawn_elsewhere(section: Section) -> Iterator[str]:
    for drawn in section.timelines:
        yield f"{drawn.title}: drawn in the HTML report and in the trace for Perfetto."


def _markdown_blocks(section: Section, level: int) -> Iterator[str]:
    if section.sentences:
        yield "\n".join(f"* {escape_markdown(sentence)}" for sentence in section.sentences)
    for command in section.commands:
        yield f"{escape_markdown(command.name)}:\n\n{_fenced(command.text)}"
    if section.facts:
        rows = [[fact.name, fact.value, fact.note] for fact in section.facts]
        yield markdown_table(["per round", "value", "note"], rows)
    yield from map(escape_markdown, _drawn_elsewhere(section))
    for table in section.tables:
        yield _markdown_table(table, level)


def _markdown_table(table: ResultTable, level: int) -> str:
    notes = [f"* {escape_markdown(note)}" for note in table.notes]
    title = f"{'#' * level} {escape_markdown(table.title)}"
    return "\n".join([title, "", markdown_table(table.headers, table.rows), *([""] if notes else []), *notes])


def _fenced(text: str) -> str:
    """A code block whose fence is longer than any run of backticks inside."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"
