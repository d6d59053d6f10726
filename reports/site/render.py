"""Renders pages as HTML that opens from a file: scripts and styles next to it, data inlined, everything from a run
escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

from jinja2 import Template
from markupsafe import Markup, escape

from specbench.reports.charts.data_table import data_table
from specbench.reports.charts.vega import specification
from specbench.reports.document import Cell, Table, filled
from specbench.reports.html import page_environment
from specbench.workloads.json_values import Json

from .page import Page
from .runs_table import ChoiceTable

_HERE = Path(__file__).parent
# First group: timestamps, intervals and short remarks in brackets, which are hard to read over two lines. Second group:
# long words, mostly names of arms and runs, which may wrap where a part ends.
_PIECES = re.compile(
    r"(\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?Z?)?|\[[^\[\]<>]{1,30}\]|\([^()<>]{1,12}\)|[\d.-]+ / [\d.-]+)"
    r"|(\S{25,})"
)
_PARTS = re.compile(r"(?<=[,./=_-])(?=[^,./=_-])")
_OWN = ("charts.js", "choose.js")
_DRAWING = ("vega.min.js", "vega-lite.min.js", "vega-embed.min.js", "charts.js")
_SYMBOLS = {
    "circle": "M17 3a4 4 0 1 1 0 8a4 4 0 1 1 0-8z",
    "square": "M13.2 3.2h7.6v7.6h-7.6z",
    "triangle-up": "M17 2.5l4.6 8.5h-9.2z",
    "triangle-down": "M17 11.5l4.6-8.5h-9.2z",
    "diamond": "M17 1.8l3.6 5.2l-3.6 5.2l-3.6-5.2z",
    "cross": "M15.4 2.6h3.2v2.8h2.8v3.2h-2.8v2.8h-3.2v-2.8h-2.8v-3.2h2.8z",
}


def render(page: Page, menu: Sequence[tuple[str, str]], site_title: str) -> str:
    """The page's HTML. `menu`: (path, title) of the pages that every page links to."""
    page = replace(page, sections=filled(page.sections))
    tables = [table for section in page.sections for table in section.tables]
    num_folded = sum(section.folded for section in page.sections)
    chosen = num_folded or any(isinstance(table, ChoiceTable) for table in tables)
    return _template().render(
        page=page,
        menu=menu,
        site_title=site_title,
        has_timelines=any(section.timelines for section in page.sections),
        num_folded=num_folded,
        scripts=(*_DRAWING * any(section.charts for section in page.sections), *("choose.js",) * bool(chosen)),
    )


def write_assets(folder: Path) -> list[Path]:
    """Scripts, their licences and the style sheet: once for the whole site."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = {path.name: [path] for path in sorted((_HERE / "vendor").iterdir()) if path.suffix != ".md"}
    sources |= {name: [_HERE / "templates" / name] for name in _OWN}
    sources["site.css"] = [_HERE.parent / "templates" / "page.css", _HERE / "templates" / "site.css"]
    for name, paths in sources.items():
        text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in sources]


def inline_json(value: Json) -> Markup:
    """JSON whose own text cannot end the script element: `</script>` and `<!--` lose their `<`."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


@lru_cache(maxsize=1 << 16)  # the pages of similar runs repeat most cells
def kept_whole(text: str) -> Markup:
    """`text` escaped, with the parts marked that must stay on one line, and foldable long words."""
    forms = (escape, Markup('<span class="whole">{}</span>').format, foldable)
    return Markup("").join(forms[n % 3](piece) for n, piece in enumerate(_PIECES.split(text)) if piece)


@lru_cache(maxsize=1 << 12)
def foldable(name: str) -> Markup:
    """`name` escaped, with a possible line break after each part."""
    return Markup(_PARTS.sub("<wbr>", escape(name)))


def _whole_rows(rows: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """The first column names the row, and folds after parts of the name."""
    return [(*map(foldable, row[:1]), *map(kept_whole, row[1:])) for row in rows]


def _linked_rows(table: Table) -> list[list[Cell]]:
    """Every cell of a table that has links or badges; empty for other tables."""
    if not any(isinstance(cell, Cell) for row in table.rows for cell in row):
        return []
    return [[cell if isinstance(cell, Cell) else Cell(text=cell) for cell in row] for row in table.rows]


@cache
def _template() -> Template:
    environment = page_environment(_HERE / "templates", _HERE.parent / "templates")
    environment.filters["whole"] = kept_whole
    environment.filters["whole_rows"] = _whole_rows
    environment.filters["linked_rows"] = _linked_rows
    environment.filters["inline_json"] = inline_json
    environment.filters["data_table"] = data_table
    environment.filters["specification"] = specification
    environment.globals["symbols"] = _SYMBOLS
    return environment.get_template("site.html.j2")
