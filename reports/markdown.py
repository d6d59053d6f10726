"""Documents and tables as GitHub Markdown. Text from runs and traces is shown literally: no markup, no HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from specbench.reports.document import Cell, Document, Section, Table

_SPECIAL = re.compile(r"([\\`*_\[\]|~])")
_MENTION = re.compile(r"@(?=\w)")


def markdown_document(document: Document, level: int = 1) -> str:
    """`level`: the level of its heading."""
    blocks = [f"{'#' * level} {escape_markdown(document.title)}"]
    blocks += [f"> **{escape_markdown(warning)}**" for warning in document.warnings]
    for section in document.sections:
        blocks += _blocks(section, level + 1)
    blocks += [markdown_document(part, level + 1).rstrip() for part in document.parts]
    return "\n\n".join(blocks) + "\n"


def markdown_result(table: Table, level: int = 2) -> str:
    """Title, table and a list of the notes."""
    title = f"{'#' * level} {escape_markdown(table.title)}\n\n" if table.title else ""
    notes = "".join(f"* {escape_markdown(note)}\n" for note in table.notes)
    return title + markdown_table(table.headers, table.rows) + "\n" + (f"\n{notes}" if notes else "")


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str | Cell]]) -> str:
    """First column left-aligned, the others right-aligned, cells escaped."""
    lines = [headers, [":---", *["---:"] * (len(headers) - 1)]]
    body = [[escape_markdown(str(cell)) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in [*lines, *body])


def markdown_pictures(paths: Sequence[str]) -> str:
    """A heading and the pictures; empty if there are none."""
    shown = [f"![{path.rsplit('/', 1)[-1].removesuffix('.png').replace('_', ' ')}]({path})" for path in paths]
    return "".join(f"\n{block}\n" for block in ["## Plots", *shown]) if shown else ""


def escape_markdown(text: str) -> str:
    """`text` escaped so that GitHub shows it literally, also inside a table: no markup, no HTML, no line break. A
    zero-width space follows each @, because GitHub searches the rendered text for names, so other escapes of @ do not
    help."""
    safe = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MENTION.sub("@&#8203;", _SPECIAL.sub(r"\\\1", safe))


def fenced(text: str, language: str) -> str:
    """A code block whose fence is longer than any run of backticks inside."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def _blocks(section: Section, level: int) -> Iterator[str]:
    """In a section without a title, the tables' titles are the headings."""
    if section.title:
        yield f"{'#' * level} {escape_markdown(section.title)}"
        level += 1
    if section.sentences:
        yield "\n".join(f"* {escape_markdown(sentence)}" for sentence in section.sentences)
    for command in section.commands:
        yield f"{escape_markdown(command.name)}:\n\n{fenced(command.text, 'text')}"
    if section.facts:
        yield markdown_table(["per round", "value", "note"], [(f.name, f.value, f.note) for f in section.facts])
    for drawing in section.timelines:
        yield f"{escape_markdown(drawing.title)}: drawn in the HTML report and in the trace for Perfetto."
    for table in section.tables:
        yield markdown_result(table, level).rstrip()
