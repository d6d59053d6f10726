"""Every chart of the site as drawn: labels whole and different, a visible mark for each legend entry, and the values of
the table below it."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from known_results import results
from matplotlib.image import imread
from run_samples import SAMPLING, begun, chain_block
from site_samples import add_trace, dated, experiment_run

from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.site.build import build_site

TWINS = [f"eagle:k=4,head=random,state_update={how},graph=piecewise,drafter=unpadded" for how in ("torch", "fused")]
PAGES = ("index", "compare", "crossover", "acceptance", "anatomy", "history", "runs/*-long-*")
STORED = Path(__file__).parents[3] / "benchmarks/runs/cpu/20261121T130436Z-k2k4quiet-3362e86c"
_CUT = """all => all.flatMap(svg => [...svg.querySelectorAll("text")].filter(text => {
    const outer = svg.getBoundingClientRect(), own = text.getBoundingClientRect();
    return own.width && (own.left < outer.left - 1 || own.right > outer.right + 1);
}).map(text => text.textContent))"""
_HEADERS = {"series": "strategy", "dashed": "line", "least": "MDE", "low": "from", "high": "to"}


def long_run(folder, started, concurrency):
    """Two arms that did exactly the same, under long names that differ in the middle only."""
    sampling = replace(SAMPLING, max_concurrency=concurrency)
    run = RunDirectory.create(folder, "long", begun("no-spec", *TWINS, sampling=sampling))
    for repeat in range(2):
        run.append("no-spec", repeat, **chain_block([0] * 12, k=0, round_ms=8.0 + 0.1 * repeat))
        for label in TWINS:
            run.append(label, repeat, **chain_block([4, 0, 2, 1, 3, 0], round_ms=10.0 + 0.1 * repeat))
    run.finish(results(run.frames()))
    add_trace(run.path)
    return dated(run.path, started=started, sha=f"{concurrency}a" * 20)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    runs = folder / "runs"
    runs.mkdir()
    for n, concurrency in enumerate((1, 8)):
        long_run(runs, f"2026-02-0{n + 1}T00:00:00Z", concurrency)
    experiment_run(runs, change=0.03)
    assert build_site([runs, STORED], folder / "site").problems == ()
    return folder / "site"


@pytest.fixture(scope="module")
def page(request, open_shared, site):
    """The one page on which all tests of a name, a width and a scheme look, and which none of them changes."""
    name, width, scheme = request.param
    page = open_shared(
        min(site.glob(f"{name}.html")),
        site,
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        device_scale_factor=2,
    )
    page.locator("details.fold").evaluate_all("all => all.forEach(e => e.open = true)")
    page.wait_for_function("[...document.querySelectorAll('.chart')].every(e => e.dataset.state)")
    yield page
    page.close()


def on_pages(*names):
    drawn = [(name, *how) for name in names for how in ((1440, "light"), (420, "dark"))]
    return pytest.mark.parametrize("page", drawn, ids=str, indirect=True, scope="module")


@on_pages(*PAGES, f"runs/*-{STORED.name.split('-')[1]}-*")
def test_no_label_is_cut_or_stands_twice(page):
    assert page.locator("svg").evaluate_all(_CUT) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for chart in page.locator("figure.chart-figure").all():
        axes = chart.locator("svg .role-axis").evaluate_all(
            "all => all.map(a => [...a.querySelectorAll('.role-axis-label text')].map(e => e.textContent))"
        )
        assert any(axes) and not [text for labels in axes for text in labels if "…" in text]
        for labels in axes:
            assert len(labels) == len(set(labels)) or not any(labels), labels
        legend = chart.locator(".legend li").all_inner_texts()
        assert len(legend) == len(set(legend)), legend
        assert not {"undefined", "null", "NaN"} & set(chart.locator("svg text").all_text_contents())


@on_pages(*PAGES)
def test_every_legend_entry_has_a_mark_that_can_be_seen(page):
    for chart in page.locator("figure.chart-figure:has(.legend)").all():
        pixels = imread(io.BytesIO(chart.locator(".chart").screenshot()))[..., :3]
        for entry in chart.locator(".legend li").all():
            colour = entry.locator("svg path, svg rect").last.evaluate("e => getComputedStyle(e).fill")
            wanted = np.array([int(part) for part in re.findall(r"\d+", colour)[:3]]) / 255
            found = (np.abs(pixels - wanted).max(axis=-1) < 0.01).sum()
            assert found >= 8, (page.url, entry.inner_text(), colour, int(found))


@on_pages(*PAGES)
def test_what_is_drawn_is_what_the_table_says(page):
    for chart in page.locator("figure.chart-figure").all():
        title = chart.locator("figcaption").inner_text()
        cells = chart.locator("details table").evaluate(
            "t => [...t.rows].map(r => [...r.cells].map(c => c.textContent.trim()))"
        )
        headers, *rows = cells
        labels = chart.locator("svg [aria-label]").evaluate_all("all => all.map(e => e.getAttribute('aria-label'))")
        marks = [
            dict(part.split(": ", 1) for part in re.split(r"; (?=[^;:]+: )", text)) for text in labels if ": " in text
        ]
        marks = [mark for mark in marks if len(mark) > 1]
        assert len(marks) == len(rows), title
        table = [dict(zip(headers, row, strict=True)) for row in rows]
        for mark in marks:
            said = {_HEADERS.get(key, key): value for key, value in mark.items()}
            assert any(all(_same(value, row[key]) for key, value in said.items() if key in row) for row in table), said


def _same(spoken: str, shown: str) -> bool:
    """As text, or as numbers to the digits of the table; a percentage is a share or a change."""
    if spoken == shown or (shown == "-" and spoken in ("NaN", "null", "undefined")):
        return True
    try:
        value = float(spoken.replace("\u2212", "-").replace(",", ""))
        told = float(shown.rstrip("%").replace(",", "")) / (100 if shown.endswith("%") else 1)
    except ValueError:
        return False
    return math.isclose(value, told, rel_tol=1e-3, abs_tol=6e-5)
