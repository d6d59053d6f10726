"""A site of 500 runs: how much memory it takes to build, how large its pages are, how long both take."""

from __future__ import annotations

from statistics import median

import pytest
from machine_pace import run_with_pace, slower
from site_samples import EAGLE, MAX_PAGE_BYTES, copied, finished_run

NUM_RUNS, MAX_SECONDS, MAX_KIB = 500, 20, 1_000_000

# In a process of its own: what other tests took would count as well.
BUILD = """
import json, sys, time
from pathlib import Path
from statistics import median
from specbench.reports.site.build import build_site
built = build_site([Path(sys.argv[1])], Path(sys.argv[2]))
peak_kib = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
print(json.dumps(dict(num_runs=built.num_runs, cpu_s=time.process_time(), peak_kib=peak_kib)))
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """(the site, what its build took)"""
    folder = tmp_path_factory.mktemp("large")
    first = finished_run(folder, started="2025-12-31T00:00:00Z", sha="a" * 40)
    for n in range(NUM_RUNS):
        day, hour = divmod(n, 24)
        began = f"2026-01-{day + 1:02d}T{hour:02d}:00:00Z"
        copied(first, folder / "runs", n, started=began, sha=f"{n:04x}" * 10, scale=1.05 if n > 450 else 1.0)
    return folder / "site", run_with_pace(BUILD, folder / "runs", folder / "site")


@pytest.mark.timed
def test_500_runs_in_20_seconds_of_the_processor(large):
    assert large[1]["cpu_s"] < MAX_SECONDS * large[1]["slower"]


def test_500_runs_in_a_gigabyte(large):
    site, took = large
    assert took["num_runs"] == NUM_RUNS and took["peak_kib"] < MAX_KIB, took
    assert max(path.stat().st_size for path in site.rglob("*.html")) < MAX_PAGE_BYTES


def test_a_long_history_is_thinned(large):
    history = (large[0] / "history.html").read_text()
    assert "The older ones of 500 commits are thinned out" in history and "+5.00%" in history and EAGLE in history


@pytest.mark.timed
@pytest.mark.parametrize("name", ["index", "history", "compare", "run"])
def test_the_first_chart_is_drawn_within_a_second(browser, large, name):
    path = max((large[0] / "runs").iterdir()) if name == "run" else large[0] / f"{name}.html"
    drawn_ms = []
    for _ in range(5):
        page = browser.new_context().new_page()
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-charts=drawn]")
        drawn_ms.append(page.evaluate("performance.getEntriesByName('chart drawn')[0].startTime"))
        page.context.close()
    assert median(drawn_ms) < 1000 * slower(), drawn_ms
