"""The files of a run with their hashes: those recorded at its end, checked again, and files written later."""

from __future__ import annotations

from pathlib import Path

from specbench.reports.document import Table
from specbench.workloads.assets.cache import read_sha256

from .runs import SiteRun

_MAX_FILES, _MAX_HASHED_BYTES = 60, 64_000_000


def files_table(run: SiteRun) -> Table:
    """Recorded files first."""
    recorded = run.record.files
    rows = [(name, *_recorded(run.path / name, sha256)) for name, sha256 in recorded.items()]
    names = (path.relative_to(run.path).as_posix() for path in run.path.rglob("*") if _is_shown(path))
    later = sorted(name for name in names if name not in recorded)
    rows += [(name, *_size_and_hash(run.path / name), "not recorded there") for name in later[:_MAX_FILES]]
    notes = [] if recorded else ["The run was not finished: its raw tables have no recorded hashes yet."]
    if len(later) > _MAX_FILES:
        notes.append(f"{len(later) - _MAX_FILES} more files are not listed.")
    headers = ("file", "bytes", "sha256", "against run.json")
    return Table(title=str(run.path), headers=headers, rows=tuple(rows), notes=tuple(notes))


def _recorded(path: Path, digest: str) -> tuple[str, str, str]:
    if not path.is_file():
        return "-", digest, "MISSING"
    state = "as recorded" if read_sha256(path) == digest else "CHANGED since it was recorded"
    return f"{path.stat().st_size:,}", digest, state


def _size_and_hash(path: Path) -> tuple[str, str]:
    size = path.stat().st_size
    return f"{size:,}", read_sha256(path) if size <= _MAX_HASHED_BYTES else "not computed"


def _is_shown(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0 and not path.name.startswith(".")
