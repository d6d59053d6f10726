"""The page in a browser, opened from a file: nothing on the console, nothing from the network, readable by tools."""

import pytest
from profile_samples import eagle_profile, foreign_profile, fused_profile, hostile_profile

from specbench.reports.html import html_page
from specbench.reports.profile.diff_document import diff_document
from specbench.reports.profile.report import profile_document, profiles_document

PAGES = {
    "one": lambda: profile_document(eagle_profile(), "Profile: eagle"),
    "several": lambda: profiles_document({"eagle": eagle_profile(), "fused": fused_profile()}, "Profiles"),
    "refused": lambda: profile_document(foreign_profile(), "Profile: eagle"),
    "diff": lambda: diff_document(eagle_profile(), fused_profile(), ("old", "new")),
    "hostile": lambda: profile_document(hostile_profile(), "Profile: eagle"),
}


@pytest.fixture
def opened(open_file, tmp_path):
    """`opened(name, **context)`: the page."""

    def open_page(name, **options):
        file = tmp_path / f"{name}.html"
        file.write_text(html_page(PAGES[name]()), encoding="utf-8")
        return open_file(file, **options)

    return open_page


@pytest.mark.parametrize("name", PAGES)
def test_it_opens_from_a_file_without_a_word(opened, name):
    page = opened(name)
    assert page.locator("h1").count() == 1 and page.locator("svg.timeline rect").count() > 0
    assert page.evaluate("document.images.length + document.scripts.length") == 0


@pytest.mark.parametrize("name", PAGES)
def test_a_narrow_screen_scrolls_tables_not_the_page(opened, name):
    page = opened(name, viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator(".scroll").evaluate_all("all => all.some(e => e.scrollWidth > e.clientWidth)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_follows_the_colour_scheme(opened, scheme):
    page = opened("one", color_scheme=scheme)
    ground, text = page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    brightness = [sum(map(int, colour[4:-1].split(","))) for colour in (ground, text)]
    assert (brightness[0] > brightness[1]) is (scheme == "light") and abs(brightness[0] - brightness[1]) > 400


def test_paper_is_white_also_from_a_dark_screen(opened):
    page = opened("one", color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("nav").is_hidden() and page.locator("svg.timeline").is_visible()


def test_the_keyboard_reaches_the_report(opened):
    page = opened("one")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_the_drawing_holds_what_it_should(opened):
    page = opened("diff")
    drawings = page.locator("svg.timeline")
    assert drawings.count() == 2
    for i in range(2):
        assert 0 < drawings.nth(i).locator("rect").count() <= 300
        assert drawings.nth(i).locator("rect > title").count() == drawings.nth(i).locator("rect").count()
    assert (
        page.locator("svg.timeline rect.phase-verify").first.evaluate("e => getComputedStyle(e).fill").startswith("url")
    )
    last = page.locator("svg.timeline").first.evaluate(
        "s => Math.max(...[...s.querySelectorAll('text')].map(t => t.getBBox().x + t.getBBox().width))"
    )
    assert last <= 1000  # no label is cut off at the right


@pytest.mark.parametrize(
    ("name", "scheme"), [*((name, "light") for name in PAGES), ("refused", "dark"), ("diff", "dark")]
)
def test_axe_finds_nothing_serious(opened, serious_violations, name, scheme):
    assert serious_violations(opened(name, color_scheme=scheme)) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [420, 1440])
def test_tables_fit_or_visibly_scroll_in_their_own_box(opened, width, scheme):
    """A shadow lies at the side where a table goes on: rows let it through."""
    page = opened("several", viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.locator("details").evaluate_all("all => all.forEach(e => e.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = page.locator(".scroll:has(table)").evaluate_all(
        "all => all.map(e => [e.scrollWidth > e.clientWidth + 1, getComputedStyle(e).backgroundImage])"
    )
    assert boxes and all("linear-gradient" in image for _, image in boxes)
    assert any(is_wide for is_wide, _ in boxes) is (width == 420)
    striped = "e => getComputedStyle(e).backgroundColor"
    assert page.locator("tbody tr:nth-child(even)").first.evaluate(striped).startswith("rgba(")
