"""The site in a browser, opened from files: what is plotted, said aloud, logged, and asked of the network."""

from __future__ import annotations

import re

import pytest
from hints import check, hints_of
from site_samples import ARMS, EAGLE, HOSTILE, broken_runs, whole_sample

from specbench.harness.judge.comparison import compare_runs
from specbench.harness.judge.stored import read_run
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.experiments.crossover_chart import crossover_frame
from specbench.reports.experiments.crossover_table import display_names
from specbench.reports.run.charts import histogram_frame, phase_frame, position_frame
from specbench.reports.site.build import build_site
from specbench.reports.site.crossover_records import group_record
from specbench.reports.site.distributions import length_frame
from specbench.reports.site.find import find_runs
from specbench.reports.site.groups import by_case, by_load, newest_by_load
from specbench.reports.site.predecessors import followers
from specbench.reports.site.runs import read_site_runs
from specbench.reports.site.stored_comparison import change_frame
from specbench.reports.site.verdict_charts import interval_frame

PAGES = ("index", "compare", "crossover", "acceptance", "anatomy", "accuracy", "history")
_MINUS = "\u2212"  # as Vega writes negative numbers


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    runs = whole_sample(folder)
    broken_runs(runs, next(runs.glob("*-copy-*")))
    build_site([runs], folder / "site")
    found, _ = read_site_runs(find_runs([runs])[0])
    return folder / "site", found


@pytest.fixture
def opened(open_file, site):
    """`opened(path, folded, **context)`: a page with its charts drawn; every section is opened unless `folded`."""
    return lambda path, folded=False, **options: drawn(open_file, site, path, folded, **options)


@pytest.fixture(scope="module")
def page(request, open_shared, site):
    """The one page on which all tests of a name look, and of which none changes more than the colours."""
    page = drawn(open_shared, site, run_path(site, 1) if request.param == "run" else f"{request.param}.html")
    yield page
    page.close()


def on_pages(*names):
    return pytest.mark.parametrize("page", names, indirect=True, scope="module")


def drawn(open_file, site, path, folded=False, **options):
    path, _, fragment = path.partition("#")
    page = open_file(site[0] / path, site[0], fragment=fragment, **options)
    if page.locator(".chart").count():
        page.wait_for_selector("html[data-charts=drawn]")
    if not folded:
        open_all(page)
        assert page.locator(".chart:not([data-state=drawn])").count() == 0
    return page


def open_all(page):
    """Opens the sections and waits for their charts."""
    page.locator("details.fold").evaluate_all("all => all.forEach(e => e.open = true)")
    page.wait_for_function("[...document.querySelectorAll('.chart')].every(e => e.dataset.state)")


def test_every_command_on_a_page_can_be_typed(site):
    hints = {hint for page in site[0].rglob("*.html") for hint in hints_of(page)}
    for hint in hints:
        check(hint)
    assert {hint.split()[1] for hint in hints} >= {"certify", "compare", "run"}


def run_path(site, number=0):
    return site[1][number].page


def spoken(page, chart) -> list[dict[str, str]]:
    """The accessible names of a chart's marks, as fields."""
    labels = page.locator(f"figure:has(figcaption:text-is('{chart}'))").first.locator("svg [aria-label]")
    names = labels.evaluate_all("all => all.map(e => e.getAttribute('aria-label'))")
    return [dict(part.split(": ", 1) for part in re.split(r"; (?=[^;:]+: )", name)) for name in names if ": " in name]


def plotted(page, chart, keys, value) -> dict[tuple[str, ...], float]:
    marks = [mark for mark in spoken(page, chart) if value in mark]
    assert marks, f"no mark of {chart!r} says {value!r}"
    return {
        tuple(mark[key] for key in keys): float(mark[value].replace(_MINUS, "-").replace(",", "")) for mark in marks
    }


def newest_of(site, page_frame):
    return next(run for group in by_case(site[1]) if len(page_frame((run := group.newest).arms)))


def test_crossover_plots_its_frame(opened, site):
    group = next(g for g in by_load(r for r in site[1] if r.ab is None))
    record = group_record(group)
    frame = crossover_frame(record, display_names(record))
    page = opened("crossover.html")
    found = plotted(
        page,
        "Speed-up of TPOT against no-spec by concurrency",
        ("series", "concurrency (log scale)"),
        "speed-up of TPOT",
    )
    expected = {(row.series, str(row.x)): row.y for row in frame.itertuples()}
    assert set(frame["series"]) == {EAGLE, HOSTILE} and set(frame["x"]) == {1, 8, 64}
    assert found == pytest.approx(expected)


def test_positions_and_histogram_plot_their_frames(opened, site):
    page = opened("acceptance.html")
    run = newest_of(site, position_frame)
    marginal = position_frame(run.arms)
    found = [m for m in spoken(page, "Accepted by draft position") if "accepted" in m]
    drawn = sorted((m["series"], int(m["draft position"]), float(m["accepted"])) for m in found)
    assert [mark[:2] for mark in drawn] == sorted((row.series, row.x) for row in marginal.itertuples())
    told = sorted((row.series, row.x, row.y) for row in marginal.itertuples())
    assert [mark[2] for mark in drawn] == pytest.approx([row[2] for row in told])
    shares = plotted(page, "Drafts accepted per verification", ("series", "accepted drafts"), "share of verifications")
    assert shares == pytest.approx({(r.series, str(r.x)): r.y for r in histogram_frame(run.arms).itertuples()})


def test_phases_plot_their_frame(opened, site):
    run = newest_of(site, phase_frame)
    found = plotted(opened("anatomy.html"), "Phases of a decode round", ("strategy", "part"), "ms per decode round")
    assert found == pytest.approx({(r.y, r.part): r.x for r in phase_frame(run.arms).itertuples()})


def test_the_overview_plots_the_stored_speedups(opened, site):
    group = next(g for g in by_load(r for r in site[1] if r.ab is None))
    page = opened("index.html")
    keys, y = ("series", "concurrency (log scale)"), "speed-up of TPOT (1x is no-spec)"
    found = plotted(page, "Speed-up of TPOT against no-spec by concurrency", keys, y)
    expected = {
        (arm.label, str(run.concurrency)): arm.speedup.tpot_ratio
        for run in newest_by_load(group).values()
        for arm in run.arms
        if arm.speedup
    }
    assert len(expected) == 6 and found == pytest.approx(expected)


def test_runs_are_chosen_and_sorted_and_the_address_says_so(opened, site):
    page = opened("index.html")
    rows = page.locator("table[data-choices] tbody tr:visible")
    assert rows.count() == len(site[1]) and "sort" not in page.url
    page.get_by_label("strategy").select_option("ngram")
    assert rows.count() == len([run for run in site[1] if run.ab is None]) == len(site[1]) - 1
    assert page.get_by_role("status").inner_text() == f"{len(site[1]) - 1} of {len(site[1])} rows"
    page.get_by_role("button", name="best speed-up, or change").click()
    assert page.locator("th[aria-sort=descending]").count() == 1
    again = opened("index.html#" + page.url.partition("#")[2])
    shown = again.locator("table[data-choices] tbody tr:visible td:nth-child(2)").all_inner_texts()
    factors = [float(text.partition("x")[0]) for text in shown]
    assert len(factors) == len(site[1]) - 1 and factors == sorted(factors, reverse=True) != factors[::-1]
    again.get_by_role("button", name="show all").click()
    assert again.locator("table[data-choices] tbody tr:visible").count() == len(site[1])


def test_a_fragment_that_names_nothing_known_hides_nothing(opened, site):
    page = opened("index.html#strategy=unheard-of&sort=-%3Cb%3E&s2")
    assert page.locator("table[data-choices] tbody tr:visible").count() == len(site[1])


def test_the_verdict_plots_its_frame(opened, site):
    record = next(run.ab for run in site[1] if run.ab)
    page = opened("compare.html")
    found = plotted(page, "Change of B against A", ("metric",), "change of B against A")
    assert found == pytest.approx({(r.y,): r.x for r in interval_frame(record).itertuples()}, abs=1e-12)
    verdicts = {mark["metric"]: mark["verdict"] for mark in spoken(page, "Change of B against A") if "verdict" in mark}
    assert verdicts["step time"] == "▼ regressed" and verdicts["TTFT"] == "exploratory"


def test_history_plots_every_commit(opened):
    page = opened("history.html")
    found = plotted(page, "Step time, ms", ("series", "commit number, oldest first"), "Step time, ms")
    own = [value for (series, _), value in sorted(found.items(), key=lambda kv: int(kv[0][1])) if series == EAGLE]
    assert len(own) == 25 and own[-1] / own[1] == pytest.approx(1.06, abs=0.01)
    assert page.locator("caption span:text-is('Change points')").count() == 1


@pytest.mark.parametrize("name", [*PAGES, "experiment"])
def test_a_narrow_screen_scrolls_tables_not_the_page(opened, site, name):
    experiment = next(run for run in site[1] if run.ab is not None)
    path = experiment.page if name == "experiment" else f"{name}.html"
    page = opened(path, viewport={"width": 390, "height": 844})
    named = ".table-note, .sentences li, caption span, h2"  # all that may hold the name of an arm
    page.locator(named).evaluate_all("all => all.forEach(e => e.append('x'.repeat(150)))")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("h1").count() == 1


def test_an_experiment_answers_on_the_first_screen(opened, site):
    """Is B faster, by how much, are the answers still the same, and how is it repeated."""
    run = next(run for run in site[1] if run.ab is not None)
    page = opened(run.page, viewport={"width": 1440, "height": 900})
    places = [page.locator(place).first for place in ("main pre", "h2 .badge", "dl.facts")]
    assert all(box["y"] + box["height"] <= 900 for box in (place.bounding_box() for place in places))
    command, badge, facts = (place.inner_text() for place in places)
    assert command == run.record.command and badge.split()[-1] in ("improved", "regressed")
    assert "TPOT" in facts and "%" in facts and "same answers" in facts


def test_run_pages_begin_with_the_command(opened, site):
    page = opened(run_path(site))
    assert page.locator("main pre").first.inner_text() == site[1][0].record.command
    page.locator("nav a", has_text="Overview").click()
    assert page.locator("h1").inner_text() == "Overview"


def test_hostile_labels_are_shown_literally(opened, site):
    plain = next(n for n, run in enumerate(site[1]) if run.ab is None)
    for path in ("crossover.html", "compare.html", run_path(site, plain)):
        page = opened(path)
        assert HOSTILE in page.locator("main").inner_text()
        assert page.evaluate("document.images.length") == 0


@on_pages(*PAGES)
def test_each_chart_has_its_table(page):
    charts, tables = page.locator("figure.chart-figure"), page.locator("figure.chart-figure details table")
    assert 0 < charts.count() == tables.count()


def test_a_colour_has_a_shape_beside_it(opened):
    page = opened("crossover.html")
    get = "all => all.map(e => e.getAttribute('d'))"
    for legend in page.locator(".legend").all():
        shapes = legend.locator("path:not(.key-line)").evaluate_all(get)
        assert len(shapes) == len(set(shapes)) > 0
    assert len(page.locator(".legend").first.locator("path:not(.key-line)").evaluate_all(get)) == len(ARMS) - 1


def test_the_keyboard_reaches_the_report(opened):
    page = opened("index.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_charts_follow_the_colour_scheme_and_paper(opened):
    page = opened("crossover.html", color_scheme="dark")
    label = page.locator(".chart svg .role-axis-label text").first
    assert label.evaluate("e => getComputedStyle(e).fill") == "rgb(232, 234, 238)"
    page.emulate_media(media="print", color_scheme="dark")
    assert label.evaluate("e => getComputedStyle(e).fill") == "rgb(0, 0, 0)"
    assert page.locator("nav").first.is_hidden() and page.locator(".chart svg").first.is_visible()


@on_pages(*PAGES, "run")
def test_axe_finds_nothing_serious(page, serious_violations):
    """In both schemes, which the style sheet alone tells apart."""
    found = {}
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        found[scheme] = serious_violations(page)
    assert found == {"dark": [], "light": []}


def test_run_pages_draw_their_distributions(opened, site):
    run = next(run for run in site[1] if run.ab is None)
    frame = length_frame(run, RunDirectory.open(run.path).frames())
    page = opened(run.page)
    keys = ("series", "round of the answer")
    found = plotted(page, "Acceptance length over the course of an answer", keys, "tokens per verification")
    assert found == pytest.approx({(row.series, str(row.x)): row.y for row in frame.itertuples()})
    shares = spoken(page, "TPOT of the requests")
    assert {mark["series"] for mark in shares} == set(ARMS) and {"share of requests", "TPOT, ms"} <= set(shares[0])


def test_the_newest_run_is_drawn_against_the_one_before(opened, site):
    ordinary = [run for run in site[1] if run.ab is None]
    follows = followers(site[1])[ordinary[0].page]
    frame = change_frame(compare_runs([read_run(run.path) for run in (follows.comparable, follows.run)]))
    page = opened("compare.html")
    found = plotted(page, "Change since the previous run", ("strategy and metric",), "change against the previous run")
    assert found == pytest.approx({(row.y,): row.x for row in frame.itertuples()}, abs=1e-12) and len(found) == 9


def test_commits_of_a_history_lead_to_their_runs(opened, site):
    page = opened("history.html")
    page.locator("table:has(caption span:text-is('Change points')) tbody th a").first.click()
    assert page.locator("h1").inner_text().startswith("Run ") and page.locator("main pre").count()


@pytest.mark.parametrize("name", [*PAGES, "run", "experiment"])
def test_nothing_is_cut_off_on_paper(opened, site, name):
    experiment = next(run for run in site[1] if run.ab is not None)
    paths = {"run": run_path(site, 1), "experiment": experiment.page}
    page = opened(paths.get(name, f"{name}.html"), viewport={"width": 703, "height": 1000})  # A4 less its margins
    page.emulate_media(media="print")
    wide = page.locator(".scroll").evaluate_all(
        "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.getAttribute('aria-label'))"
    )
    assert wide == []


def test_one_comparison_is_open_and_the_others_on_demand(opened):
    page = opened("compare.html", folded=True)
    folds, height = page.locator("details.fold"), page.evaluate("document.documentElement.scrollHeight")
    assert folds.count() == page.locator("main > section").count() - 1 > 0
    assert page.locator("details.fold .chart[data-state]").count() == 0
    folds.first.locator("> summary").click()
    page.wait_for_selector("details.fold[open]")
    name = folds.first.get_attribute("data-name")
    page.wait_for_function("location.hash.includes('open=')")
    assert f"open={name}" in page.url and page.evaluate("document.documentElement.scrollHeight") > height + 200
    again = opened(f"compare.html#open={name}", folded=True)
    assert again.locator("details.fold[open]").evaluate_all("all => all.map(e => e.dataset.name)") == [name]
    again.get_by_role("button", name="open all").click()
    again.wait_for_function("[...document.querySelectorAll('.chart')].every(e => e.dataset.state === 'drawn')")


def test_a_link_to_a_folded_section_opens_it(opened):
    page = opened("compare.html", folded=True)
    name = page.locator("details.fold").last.get_attribute("data-name")
    page = opened(f"compare.html#{name}", folded=True)
    assert page.locator("details.fold[open]").get_attribute("data-name") == name
    assert page.locator(f"[id='{name}']").is_visible()
