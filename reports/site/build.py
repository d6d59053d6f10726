"""Builds the site from run directories: reads each run once, makes the pages, writes those that changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copyfile

from specbench.harness.judge.history.accepted import Accepted, read_accepted
from specbench.harness.judge.stored import Problem
from specbench.harness.stats.slos import Slos
from specbench.harness.store.codec import read_object
from specbench.harness.store.files import write_json
from specbench.harness.store.safe_paths import path_inside, refuse_links
from specbench.harness.store.writing import writing
from specbench.reports.charts.chart import Chart, Styles
from specbench.reports.document import Cell
from specbench.reports.html import html_page
from specbench.reports.profile.report import profiles_document

from .acceptance_page import acceptance_page
from .accuracy_page import accuracy_page
from .anatomy_page import anatomy_page
from .compare_page import compare_page
from .crossover_page import crossover_page
from .find import find_runs, histories
from .groups import by_case
from .history_page import history_page
from .history_series import MAX_WORKLOADS, points, series_histories
from .overview_page import PATH as OVERVIEW
from .overview_page import overview_page
from .page import Page
from .predecessors import followers
from .render import render, write_assets
from .run_page import run_page
from .runs import SiteRun, read_site_runs

MARKER = "site.json"
_SCHEMA = "specbench.site/1"
_MAX_WHOLE = 40  # runs whose pages include what must be derived from raw tables
FORMATS = ("html", "png", "pdf")


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """`index`: the page to open. `problems`: what could not be read, as listed on the overview."""

    index: Path
    num_runs: int
    files: tuple[Path, ...]
    problems: tuple[Problem, ...]


def build_site(
    paths: Sequence[Path],
    output: Path,
    formats: Iterable[str] = ("html",),
    title: str = "specbench",
    slos: Slos | None = None,
    more: Callable[[Sequence[SiteRun]], Sequence[Page]] = lambda runs: (),
) -> Built:
    """Writes the site of the runs in `paths` into `output`, replacing the site that is there. `slos`: with goodput.

    ValueError if no run can be read, or if `output` contains something other than a site. `formats`: html is always
    written; png and pdf add every chart as a picture, drawn by matplotlib from the same values. `more`: the caller's
    own pages, made from the runs that were read; they come after the overview.
    """
    _check_output(output)
    directories, missing = find_runs(paths)
    runs, broken = read_site_runs(directories, slos)
    problems = (*missing, *broken)
    if not runs:
        reasons = "; ".join(p.reason for p in problems[:3])
        raise ValueError(f"runs: none of those given can be read ({reasons})")
    accepted = [entry for folder in histories(paths) for entry in read_accepted(folder)]
    pages, menu = site_pages(runs, problems, accepted, more(runs))
    files = write_assets(output / "assets")
    files += [_write(output / page.path, render(page, menu, title)) for page in pages]
    files += [_write(output / _profile_path(run), _profile_html(run)) for run in runs if run.profiles]
    files += [_copy(source, output / path) for page in pages for path, source in page.files.items()]
    extra = [name for name in formats if name != "html"]
    if extra:
        from specbench.reports.charts.pictures import write_pictures  # matplotlib, which pages do not need

        files += write_pictures(_named_charts(pages), output / "charts", extra)
    _remove_stale(output, files)
    _mark(output, files)
    return Built(index=output / "index.html", num_runs=len(runs), files=tuple(files), problems=problems)


def site_pages(
    runs: Sequence[SiteRun], problems: Sequence[Problem], accepted: Sequence[Accepted], more: Sequence[Page]
) -> tuple[list[Page], list[tuple[str, str]]]:
    """Every page, and the menu: (path, title) of the pages that all pages link to."""
    styles, follows = Styles(), followers(runs)
    histories, num_cases = series_histories(points(runs), accepted, MAX_WORKLOADS)
    main = [
        overview_page(runs, problems, histories, styles),
        *more,
        compare_page(runs, follows),
        crossover_page(runs, styles),
        acceptance_page(runs, styles),
        anatomy_page(runs),
        accuracy_page(runs),
        history_page(runs, histories, num_cases, styles),
    ]
    whole = _read_whole(runs)
    each = [
        run_page(run, follows.get(run.page), _profile_path(run) if run.profiles else None, styles, run.page in whole)
        for run in runs
    ]
    return [*main, *each], [(page.path, page.title) for page in main]


def _read_whole(runs: Sequence[SiteRun]) -> set[str]:
    """Pages of the runs whose raw tables are read: the newest of each workload first, then the newest overall."""
    first = [group.newest.page for group in by_case(runs)]
    return set(list(dict.fromkeys([*first, *(run.page for run in runs)]))[:_MAX_WHOLE])


def _named_charts(pages: Iterable[Page]) -> Iterator[tuple[str, Chart]]:
    for page in pages:
        stem = page.path.removesuffix(".html").replace("/", "-")
        yield from ((f"{stem}-{chart.name}", chart) for section in page.sections for chart in section.charts)


def _profile_path(run: SiteRun) -> str:
    return run.page.replace("runs/", "profiles/", 1)


def _profile_html(run: SiteRun) -> str:
    """A page without the site's menu: it links back to its run and to the overview."""
    root = "../" * _profile_path(run).count("/")
    back = (Cell(text="Overview", href=f"{root}{OVERVIEW}"), Cell(text=f"Run {run.run_id}", href=f"{root}{run.page}"))
    return html_page(replace(profiles_document(run.profiles, f"Traces of {run.run_id}"), back=back))


def _check_output(output: Path) -> None:
    if output.exists() and not output.is_dir():
        raise ValueError(f"output: {output} is a file; give a directory")
    if output.is_dir() and any(output.iterdir()) and not (output / MARKER).is_file():
        raise ValueError(f"output: {output} contains something other than a site; give an empty or a new directory")
    with writing("output", output):
        output.mkdir(parents=True, exist_ok=True)
        if not (output / MARKER).is_file():
            _mark(output, [])  # so that an interrupted build can be repeated
    refuse_links(output)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _copy(source: Path, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    copyfile(source, path)
    return path


def _mark(output: Path, files: Iterable[Path]) -> None:
    names = sorted(path.relative_to(output).as_posix() for path in files)
    write_json(output / MARKER, {"schema": _SCHEMA, "files": names})  # a half would have the next build refused


def _remove_stale(output: Path, files: Iterable[Path]) -> None:
    """Removes files of an earlier site that this one has not written: the page of a run that is gone must not stay."""
    kept = {path.resolve() for path in files}
    for path in _earlier(output):
        if path.resolve() not in kept and path.is_file():
            path.unlink()


def _earlier(output: Path) -> Iterator[Path]:
    names = read_object(output / MARKER, mend="remove the directory and build again").get("files")
    for name in names if isinstance(names, list) else ():
        yield path_inside(output, name, f"{output / MARKER}: files")
