"""A progress bar on stderr for downloads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from specbench.workloads.assets.cache import Progress


@contextmanager
def download_progress() -> Iterator[Progress]:
    """A :data:`Progress` to pass to ``resolve``; shows nothing until bytes move, one line for each label."""
    from rich.console import Console
    from rich.progress import DownloadColumn, TaskID
    from rich.progress import Progress as Bars

    with Bars(*Bars.get_default_columns(), DownloadColumn(), console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def show(label: str, done_bytes: int, total_bytes: int) -> None:
            if label not in tasks:
                tasks[label] = bars.add_task(label, total=total_bytes)
            bars.update(tasks[label], completed=done_bytes)

        yield show
