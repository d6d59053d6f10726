"""Resolves the user's name of a draft head to a local folder: on this disk, shipped, or from the hub."""

from __future__ import annotations

from pathlib import Path

from specbench.workloads.assets.cache import Progress
from specbench.workloads.assets.shipped_heads import PREFIX, shipped_folder

ALLOWED_HEAD = "the folder of an EAGLE-3 or EAGLE-1 checkpoint, its hub name (org/name), or shipped:NAME"


def head_folder(head: str, progress: Progress | None = None) -> Path:
    """A folder with a head's files, downloaded if need be. ValueError with what is allowed or was tried."""
    if head.startswith(PREFIX):
        return shipped_folder(head)
    folder = Path(head).expanduser()
    if folder.is_dir():
        return folder
    from specbench.workloads.assets.resolve import (  # the hub's client, which a folder does not need
        HUB_NAME,
        looks_like_file,
        resolve,
    )

    if looks_like_file(head) or not HUB_NAME.fullmatch(head):
        raise ValueError(f"head={head!r} is not a directory; give {ALLOWED_HEAD}")
    found = resolve(head, progress=progress).path
    if not found.is_dir():
        raise ValueError(f"head={head!r} is a file; give {ALLOWED_HEAD}")
    return found
