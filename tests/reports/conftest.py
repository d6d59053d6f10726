"""Commands that report, and pages in a browser, opened from files.

The browser needs a Chromium on the PATH (Debian: `chromium`) and the package `playwright`; the accessibility check also
the package `axe-playwright-python`, which brings axe-core with it.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager

import pytest
import typer
from typer.testing import CliRunner

from specbench.harness.cli.env import env
from specbench.harness.cli.show import show

PATIENCE_MS = 120_000  # a busy machine is no failure


@pytest.fixture
def cli():
    app = typer.Typer()
    app.command("show")(show)
    app.command("env")(env)
    return lambda *words: CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("there is no chromium on the PATH")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=PATIENCE_MS)
        yield browser
        browser.close()


@contextmanager
def opening(browser):
    """Gives `open_page(path, inside, fragment, **context)`: the page; a word on the console, a dialog, or a request for
    anything but files in the folder `inside` (without one: the file itself) is an error at the end."""
    complaints, contexts = [], []

    def open_page(path, inside=None, fragment="", **options):
        allowed = (inside or path).resolve().as_uri()
        context = browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda asked: None if _is_local(asked.url, allowed) else complaints.append(asked.url))
        page.goto(path.resolve().as_uri() + f"#{fragment}" * bool(fragment))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def open_file(browser):
    """As `opening` gives it."""
    with opening(browser) as open_page:
        yield open_page


@pytest.fixture(scope="module")
def open_shared(browser):
    """As `open_file`, for pages that several tests look at; what is wrong with them fails the last one."""
    with opening(browser) as open_page:
        yield open_page


def _is_local(url, allowed):
    url = url.partition("#")[0]
    return url == allowed or url.startswith((allowed + "/", "data:"))


@pytest.fixture(scope="session")
def serious_violations():
    """`serious_violations(page)`: rule and first place of what axe finds, folded tables opened."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is not installed")

    def found(page):
        page.locator("details").evaluate_all("all => all.forEach(e => e.open = true)")
        told = axe.Axe().run(page, options={"preload": False, "resultTypes": ["violations"]}).response
        violations = told["violations"]
        return [(v["id"], v["nodes"][0]["html"]) for v in violations if v["impact"] in ("serious", "critical")]

    return found
