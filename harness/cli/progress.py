"""Progress on stderr: a line of state, a bar for the requests of a block, a bar for downloads."""

from __future__ import annotations

import os
import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


class RunProgress:
    """A live bar on a terminal; plain lines elsewhere (CI, files), and nothing with `quiet`."""

    def __init__(self, quiet: bool):
        self._console = Console(stderr=True)
        self._quiet = quiet
        live = not quiet and sys.stderr.isatty() and not os.environ.get("CI")
        self._bars = (
            Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[note]}"),
                console=self._console,
                transient=True,
            )
            if live
            else None
        )
        self._block: TaskID | None = None
        self._downloads: dict[str, TaskID] = {}
        self._tokens = 0

    def __enter__(self) -> RunProgress:
        if self._bars:
            self._bars.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bars:
            self._bars.stop()

    def say(self, text: str) -> None:
        if not self._quiet:
            self._console.print(f"specbench: {text}", markup=False, highlight=False, soft_wrap=True)

    def asset(self, name: str, done: int, total: int) -> None:
        if self._bars is None:
            return
        if name not in self._downloads:
            self._downloads[name] = self._bars.add_task(f"fetching {name}", total=total or None, note="")
        self._bars.update(self._downloads[name], completed=done, total=total or None)

    def start_block(self, arm: str, repeat: int, num_requests: int) -> None:
        self._tokens = 0
        if self._bars is None:
            self.say(f"{arm}: repeat {repeat + 1}, {num_requests} requests")
            return
        if self._block is not None:
            self._bars.remove_task(self._block)
        self._block = self._bars.add_task(f"{arm} · repeat {repeat + 1}", total=num_requests, note="")

    def request_done(self, request) -> None:
        self._tokens += len(request.output_ids)
        if self._bars and self._block is not None:
            self._bars.update(self._block, advance=1, note=f"{self._tokens} tokens")
