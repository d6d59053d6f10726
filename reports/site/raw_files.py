"""The files of a run with their hashes: those recorded when it was closed, checked again, and those written later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specbench.harness.store.files import sha256_file
from specbench.reports.document import Table

from .runs import SiteRun

_MOST_FILES, _MOST_HASHED_BYTES = 60, 64_000_000
_HEADERS = ("file", "bytes", "sha256", "against run.json")


def files_table(run: SiteRun) -> Table:
    """Recorded files first."""
    recorded = run.record.files
    rows = [_recorded(run.path / name, name, sha256) for name, sha256 in recorded.items()]
    later = sorted(name for name in _names(run.path) if name not in recorded)
    rows += [_later(run.path / name, name) for name in later[:_MOST_FILES]]
    notes = [] if recorded else ["The run was not finished: its raw tables have no recorded hashes yet."]
    if len(later) > _MOST_FILES:
        notes.append(f"{len(later) - _MOST_FILES} more files are not listed.")
    return Table(title=str(run.path), headers=_HEADERS, rows=tuple(rows), notes=tuple(notes))


def _recorded(path: Path, name: str, digest: str) -> tuple[str, ...]:
    if not path.is_file():
        return name, "-", digest, "MISSING"
    state = "as recorded" if sha256_file(path) == digest else "CHANGED since it was recorded"
    return name, f"{path.stat().st_size:,}", digest, state


def _later(path: Path, name: str) -> tuple[str, ...]:
    size = path.stat().st_size
    digest = sha256_file(path) if size <= _MOST_HASHED_BYTES else "not computed"
    return name, f"{size:,}", digest, "not recorded there"


def _names(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_size and not path.name.startswith("."):
            yield path.relative_to(folder).as_posix()
