"""Hash of the code in a checkout as it is now, local changes included."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

NAMESPACE = ".ns"  # symlinks in the checkout through which `specbench.*` is imported without an installation


def code_state(checkout: Path | None) -> str | None:
    """Hash of the code in `checkout` in its current state: the commit, local edits and untracked files.

    If two are equal, processes started at these times ran the same files. Only folders that are imported count: notes
    and results may be written meanwhile. None if unknown: for an installed copy, or without git.
    """
    if checkout is None or not (checkout / NAMESPACE / "specbench").is_dir():
        return None
    folders = sorted(link.name for link in (checkout / NAMESPACE / "specbench").iterdir() if link.is_dir())
    try:
        committed = git_output(checkout, "ls-tree", "HEAD", "--", *folders)
        edited = git_output(checkout, "diff", "--name-only", "--no-renames", "-z", "HEAD", "--", *folders)
        unknown = git_output(checkout, "ls-files", "--others", "--exclude-standard", "-z", "--", *folders)
    except (OSError, subprocess.CalledProcessError):
        return None
    digest = hashlib.sha256(committed.encode())
    for name in sorted({*edited.split("\0"), *(n for n in unknown.split("\0") if not _is_left_by_editor(n))} - {""}):
        digest.update(name.encode("utf-8", errors="surrogateescape") + b"\0" + _content(checkout / name))
    return digest.hexdigest()[:16]


def git_output(checkout: Path, *words: str) -> str:
    """What git prints, stripped; CalledProcessError if it fails."""
    command = ["git", "-C", str(checkout), *words]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="surrogateescape", check=True)
    return done.stdout.strip()


def _is_left_by_editor(name: str) -> bool:
    """Whether it is an editor's swap, lock or backup file (`.x.py.swp`, `.#x.py`, `#x.py#`, `x.py~`), never
    imported."""
    parts = name.split("/")
    return any(part.startswith(".") for part in parts) or parts[-1].startswith("#") or parts[-1].endswith("~")


def _content(path: Path) -> bytes:
    """Hash of a file; empty if it cannot be read, as when it has been deleted meanwhile."""
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:  # a directory, too: a repository nested in the checkout
        return b""
