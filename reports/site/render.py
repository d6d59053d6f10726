"""Pages as HTML that opens from a file: scripts and styles beside it, data inlined, everything from a run escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Template
from markupsafe import Markup, escape

from specbench.reports.charts.chart import Chart, Line
from specbench.reports.charts.data_table import data_table
from specbench.reports.charts.vega import specification
from specbench.reports.document import Table
from specbench.reports.html import page_environment
from specbench.workloads.json_values import Json

from .page import Page

_HERE = Path(__file__).parent
# Moments, intervals and short remarks in brackets: broken over two lines they are hard to read.
_KEPT_WHOLE = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?Z?)?|\[[^\[\]<>]{1,30}\]|\([^()<>]{1,12}\)|[\d.-]+ / [\d.-]+"
)
SCRIPTS = ("vega.min.js", "vega-lite.min.js", "vega-embed.min.js", "site.js")
MAX_PAGE_BYTES = 5_000_000
_SYMBOLS = {
    "circle": "M17 3a4 4 0 1 1 0 8a4 4 0 1 1 0-8z",
    "square": "M13.2 3.2h7.6v7.6h-7.6z",
    "triangle-up": "M17 2.5l4.6 8.5h-9.2z",
    "triangle-down": "M17 11.5l4.6-8.5h-9.2z",
    "diamond": "M17 1.8l3.6 5.2l-3.6 5.2l-3.6-5.2z",
    "cross": "M15.4 2.6h3.2v2.8h2.8v3.2h-2.8v2.8h-3.2v-2.8h-2.8v-3.2h2.8z",
}
_PARTS = re.compile(r"(?<=[,./=_-])(?=[^,./=_-])")
_LONG_WORD = re.compile(r"\S{25,}")  # names of arms and runs, mostly: may fold where a part ends


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """An entry of a chart's legend, which is HTML so that long names fold."""

    name: str
    colour: str
    dash: str
    path: str
    is_line: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """What a page needs of a chart. `json`: safe inside a script element."""

    json: Markup
    keys: tuple[Key, ...]
    table: Table
    height_px: int
    is_wide: bool


def render(page: Page, menu: Sequence[tuple[str, str]], site_title: str) -> str:
    """The page's text. `menu`: (path, title) of the pages that every page leads to."""
    charts = [chart for section in page.sections for chart in section.charts]
    return _template().render(
        page=page,
        menu=menu,
        site_title=site_title,
        charts={chart.name: _drawn(chart) for chart in charts},
        has_charts=bool(charts),
        has_timelines=any(section.timelines for section in page.sections),
        scripts=SCRIPTS,
    )


def write_assets(folder: Path) -> list[Path]:
    """Scripts, their licences and the style sheet: once for the whole site."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {f"{name}": (_HERE / "vendor" / name) for name in (*SCRIPTS[:-1], *_licences())}
    found = {name: path.read_text(encoding="utf-8") for name, path in texts.items()}
    found["site.js"] = (_HERE / "templates" / "site.js").read_text(encoding="utf-8")
    styles = (_HERE.parent / "templates" / "page.css", _HERE / "templates" / "site.css")
    found["site.css"] = "\n".join(path.read_text(encoding="utf-8") for path in styles)
    for name, text in found.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in found]


def inline_json(value: Json) -> Markup:
    """JSON that no text in it can end early: `</script>` and `<!--` lose their `<`."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def kept_whole(text: str) -> Markup:
    """`text` escaped, and within it what must stay on one line."""
    parts, end = [], 0
    for found in _KEPT_WHOLE.finditer(text):
        before, whole = text[end : found.start()], Markup('<span class="whole">{}</span>').format(found.group())
        parts += [_long_words_fold(before), whole]
        end = found.end()
    return Markup("").join([*parts, _long_words_fold(text[end:])])


def _whole_rows(rows: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """The first column names the row, and folds where a part of the name ends."""
    return [(*map(_foldable, row[:1]), *map(kept_whole, row[1:])) for row in rows]


def _long_words_fold(text: str) -> Markup:
    found, end = [], 0
    for word in _LONG_WORD.finditer(text):
        found += [escape(text[end : word.start()]), _foldable(word.group())]
        end = word.end()
    return Markup("").join([*found, escape(text[end:])])


def _foldable(name: str) -> Markup:
    return Markup("<wbr>").join(escape(part) for part in _PARTS.split(name))


@cache
def _template() -> Template:
    environment = page_environment(_HERE / "templates", _HERE.parent / "templates")
    environment.filters["whole"] = kept_whole
    environment.filters["whole_rows"] = _whole_rows
    return environment.get_template("site.html.j2")


def _licences() -> list[str]:
    return sorted(path.name for path in (_HERE / "vendor").glob("*.LICENSE"))


def _drawn(chart: Chart) -> Drawn:
    spec = specification(chart)
    height = spec.get("height")
    return Drawn(
        json=inline_json(spec),
        keys=tuple(_keys(chart)),
        table=data_table(chart),
        height_px=height + 50 if isinstance(height, int) else 240,
        is_wide="facet" in chart.frame,
    )


def _keys(chart: Chart) -> Iterator[Key]:
    is_line, strokes = any(isinstance(layer, Line) for layer in chart.layers), chart.strokes()
    for name, style in chart.styles.items():
        dash = strokes.get((name, False), (3, 3))  # some names have dashed lines only
        text = "" if dash == (1, 0) else " ".join(map(str, dash))
        yield Key(name=name, colour=style.colour, dash=text, path=_SYMBOLS[style.shape], is_line=is_line)
