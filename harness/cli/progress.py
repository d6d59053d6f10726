"""Progress on stderr: a line of state, a bar for the requests of a block, a bar for downloads; or lines of JSON."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from specbench.harness.run.progress import Place
from specbench.harness.run.remaining import duration
from specbench.harness.spec.options import OutputOptions
from specbench.harness.store.rows import RequestRow

from .json_progress import JsonProgress

AnyProgress = TypeVar("AnyProgress", bound="RunProgress")
_WIDE = 110  # characters
_QUARTERS = 4  # lines printed per download without a bar
LINE_EVERY_S = 15.0  # between two progress lines without a bar


def open_progress(options: OutputOptions, command: str) -> RunProgress | JsonProgress:
    """Progress in the form that --progress and --quiet request."""
    if options.progress == "json" and not options.quiet:
        return JsonProgress(command)
    is_quiet = options.quiet or options.progress == "none"
    return LineProgress(is_quiet) if options.progress == "lines" else RunProgress(is_quiet)


class RunProgress:
    """A live bar on a terminal; plain lines elsewhere (CI, files), and nothing with `quiet`. rich honours NO_COLOR."""

    def __init__(self, quiet: bool, console: Console | None = None):
        self._console = console or Console(stderr=True)
        self.is_quiet = quiet
        self._bars = self._make_bars() if self._is_live() and not quiet else None
        self._block: TaskID | None = None
        self._downloads: dict[str, TaskID] = {}
        self._quarters: dict[str, int] = {}  # by download: quarters printed so far
        self._tokens = self._num_done = self._num = 0
        self._began = self._said = time.monotonic()

    def _is_live(self) -> bool:
        return self._console.is_terminal and not self._console.is_dumb_terminal and not os.environ.get("CI")

    def _make_bars(self) -> Progress:
        """The place wraps and is never truncated; a bar and a clock are shown only if there is room for them."""
        place = TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, overflow="fold"))
        note = TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True))
        wide = (BarColumn(bar_width=20), TimeElapsedColumn()) if self._console.width >= _WIDE else ()
        return Progress(SpinnerColumn(), place, note, *wide, console=self._console, transient=True, expand=True)

    def __enter__(self: AnyProgress) -> AnyProgress:
        if self._bars:
            self._bars.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bars:
            self._bars.stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pauses the output while something else writes to the terminal."""
        self.__exit__()
        yield
        self.__enter__()

    def say(self, text: str) -> None:
        if not self.is_quiet:
            self._console.print(f"specbench: {text}", markup=False, highlight=False, soft_wrap=True)

    def asset(self, name: str, done: int, total: int) -> None:
        """Bytes of a download: `done` of `total` (0: unknown)."""
        if self._bars is None:
            self._say_quarter(name, done, total)
            return
        if name not in self._downloads:
            self._downloads[name] = self._bars.add_task(f"fetching {name}", total=total or None, note="")
        note = f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB" if total else f"{done / 1e6:,.0f} MB"
        self._bars.update(self._downloads[name], completed=done, total=total or None, note=note)

    def _say_quarter(self, name: str, done: int, total: int) -> None:
        quarter = _QUARTERS * done // total if total else 0
        if quarter > self._quarters.get(name, -1):
            self._quarters[name] = quarter
            self.say(f"fetching {name}: {100 * quarter // _QUARTERS}% of {total / 1e6:,.0f} MB")

    def at(self, place: Place) -> None: ...

    def start_block(self, what: str, num_requests: int) -> None:
        self._tokens, self._num_done, self._num = 0, 0, num_requests
        self._began = self._said = time.monotonic()
        if self._bars is None:
            self.say(f"{what}, {num_requests} requests")
            return
        if self._block is not None:
            self._bars.remove_task(self._block)
        self._block = self._bars.add_task(what, total=num_requests, note="")

    def request_done(self, row: RequestRow) -> None:
        self._tokens += row.num_output_tokens
        self._num_done += 1
        now = time.monotonic()
        note = f"{self._num_done} of {self._num} requests, {self._tokens / max(now - self._began, 1e-9):,.0f} TPS"
        if self._bars and self._block is not None:
            self._bars.update(self._block, advance=1, note=note)
        elif self._bars is None and now - self._said >= LINE_EVERY_S and self._num_done < self._num:
            self._said = now
            left_s = (now - self._began) / self._num_done * (self._num - self._num_done)
            self.say(f"{note}, about {duration(left_s)} left for the others")


class LineProgress(RunProgress):
    """Prints lines on a terminal, too."""

    def _is_live(self) -> bool:
        return False
