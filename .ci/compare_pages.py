"""The site as drawn by the parent commit and by this one (`make pages`): same runs, same machine, same browser.

Prints every kind of page with the share of its pixels that differ; images of the differences go to `site-changes/`.
Pages that differ need a look but are not a failure; a page that this commit cannot draw is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, ImageChops
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
RUNS = "benchmarks/runs"
OUT = ROOT / "site-changes"
WIDTHS = (420, 1440)
_RUN_PAGES = 2  # pages per kind of folder, since they all look alike
_SEEN = 8  # of 255 in a channel: smaller differences come from anti-aliasing
_PATIENCE_MS = 30_000
_SETTLED = "[...document.querySelectorAll('.chart')].every(e => e.dataset.state)"


def main() -> int:
    if git("rev-parse", "--verify", "--quiet", "HEAD~1^{commit}") is None:
        print("Pages: no parent commit (the first one, or a shallow clone): nothing to compare with")
        return 0
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print("Pages: no chromium on the PATH: nothing is drawn")
        return 0
    began = time.monotonic()
    shutil.rmtree(OUT, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name, parent_checkout(Path(name) / "parent") as parent:
        sites = {"after": Path(name) / "after", "before": Path(name) / "before"}
        with ThreadPoolExecutor() as both:
            problems = list(both.map(build, (ROOT, parent), (sites["after"], sites["before"])))
        if problems[0]:
            print(f"Pages: this commit makes no site: {problems[0]}")
            return 1
        if problem := problems[1]:
            print(f"Pages: the parent commit makes no site of these runs: {problem}")
        with browser_of(chromium) as browser:
            failed = compare_sites(browser, sites["before"], sites["after"], OUT)
    print(f"({time.monotonic() - began:.0f} s; pictures of what differs: {OUT.name}/)")
    return 1 if failed else 0


def git(*words: str) -> str | None:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


@contextmanager
def parent_checkout(folder: Path) -> Iterator[Path]:
    subprocess.run(["git", "worktree", "add", "-q", "--detach", str(folder), "HEAD~1"], cwd=ROOT, check=True)
    try:
        yield folder
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(folder)], cwd=ROOT, check=True)


def build(checkout: Path, to: Path) -> str:
    """Builds the site of our stored runs with the code of a checkout; returns the error, or an empty text."""
    records = [path for name in ("run.json", "sweep.json") for path in (ROOT / RUNS).glob(f"*/*/{name}")]
    runs = sorted(str(path.parent) for path in records)
    command = [sys.executable, "-m", "specbench", "report", *runs, "-o", str(to)]
    environment = {**os.environ, "PYTHONPATH": str(checkout / ".ns")}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]


@contextmanager
def browser_of(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=_PATIENCE_MS)
        yield browser
        browser.close()


def compare_sites(browser: Browser, before: Path, after: Path, out: Path) -> list[str]:
    """Prints a line per page and width; returns the pages of `after` that cannot be drawn."""
    out.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in sorted({*page_kinds(before), *page_kinds(after)}):
        for width in WIDTHS:
            found: dict[str, Image.Image | str] = {}
            for side, site in (("before", before), ("after", after)):
                found[side] = draw(browser, site / name, width, out / f"{side}.png")
            if isinstance(found["after"], str) and (after / name).exists():
                failed.append(name)
            picture = out / f"{name.replace('/', '_')}-{width}.png"
            print(f"{width:5} px  {said(found, picture):>14}  {name}", flush=True)
    for side in ("before", "after"):
        (out / f"{side}.png").unlink(missing_ok=True)
    return failed


def page_kinds(site: Path) -> list[str]:
    """Every page of the root and a few of each folder below it, relative to the site."""
    pages = sorted(path.relative_to(site) for path in site.rglob("*.html"))
    folders: dict[Path, list[str]] = {}
    for page in pages:
        folders.setdefault(page.parent, []).append(page.as_posix())
    return [page for folder, found in folders.items() for page in (found if folder == Path() else found[:_RUN_PAGES])]


def draw(browser: Browser, page: Path, width: int, to: Path) -> Image.Image | str:
    """The whole page, or why it cannot be drawn."""
    if not page.is_file():
        return "is not there"
    errors: list[str] = []
    opened = browser.new_page(viewport={"width": width, "height": 900}, reduced_motion="reduce")
    try:
        opened.on("pageerror", lambda error: errors.append(str(error)))
        opened.goto(page.resolve().as_uri(), timeout=_PATIENCE_MS)
        opened.locator("details.fold").evaluate_all("all => all.forEach(e => e.open = true)")  # drawn once opened
        opened.wait_for_function(_SETTLED, timeout=_PATIENCE_MS)
        opened.screenshot(path=to, full_page=True, timeout=_PATIENCE_MS)
    except Exception as error:  # any playwright error is this page's result
        return f"cannot be drawn: {(errors or str(error).splitlines())[0]}"
    finally:
        opened.close()
    with Image.open(to) as image:
        return image.convert("RGB") if not errors else f"cannot be drawn: {errors[0]}"


def said(found: Mapping[str, Image.Image | str], picture: Path) -> str:
    """`3.21% differ`, with an image of the difference; or what is missing on one side."""
    before, after = found["before"], found["after"]
    if isinstance(after, str):
        return after
    if isinstance(before, str):
        return f"before: {before}"
    share, shown = difference(before, after)
    if share:
        picture.parent.mkdir(parents=True, exist_ok=True)
        shown.save(picture, optimize=True)
    return f"{share:.2%} differ" if share else "the same"


def difference(before: Image.Image, after: Image.Image) -> tuple[float, Image.Image]:
    """The share of pixels that differ, and `after` in grey with these in red; areas of only one image count as
    different."""
    size = max(before.width, after.width), max(before.height, after.height)
    common = min(before.width, after.width), min(before.height, after.height)
    mask = Image.new("L", size, 255)
    apart = ImageChops.difference(before.crop((0, 0, *common)), after.crop((0, 0, *common)))
    worst = ImageChops.lighter(ImageChops.lighter(*apart.split()[:2]), apart.split()[2])
    mask.paste(worst.point([0 if value <= _SEEN else 255 for value in range(256)]), (0, 0))
    shown = Image.new("RGB", size, "white")
    shown.paste(after.convert("L").point([192 + value // 4 for value in range(256)]).convert("RGB"), (0, 0))
    shown.paste((220, 0, 0), (0, 0, *size), mask)
    return mask.histogram()[255] / (size[0] * size[1]), shown


if __name__ == "__main__":
    sys.exit(main())
