"""A document as one self-contained HTML page: no scripts, no network access, all text from traces escaped."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from specbench.reports.document import Document, filled, text_columns

_TEMPLATES = Path(__file__).parent / "templates"


def html_page(document: Document) -> str:
    """The page's HTML. It opens from a file, and works in light and dark mode, on paper and on a narrow screen."""
    return page_environment(_TEMPLATES).get_template("page.html.j2").render(document=_filled(document))


def _filled(document: Document) -> Document:
    return replace(document, sections=filled(document.sections), parts=tuple(map(_filled, document.parts)))


def page_environment(*folders: Path) -> Environment:
    """The environment that renders pages from the templates in `folders`."""
    environment = Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,  # for every suffix: labels and kernel names come from untrusted traces and runs
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["text_columns"] = text_columns
    environment.filters["shown_length"] = _shown_length
    return environment


@lru_cache(maxsize=1 << 12)  # the same names begin the rows of most tables
def _shown_length(text: str) -> int:
    """The number of characters that the browser shows of it."""
    return len(Markup(text).striptags())
