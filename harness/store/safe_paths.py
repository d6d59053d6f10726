"""Directories that may come from others: nothing in them may lead to a file outside.

A path that the user types is followed anywhere; paths from files, and links next to them, never leave the directory.
"""

from __future__ import annotations

import os
from pathlib import Path, PureWindowsPath


def path_inside(folder: Path, name: object, field: str) -> Path:
    """`folder / name`, where a file gives `name` under `field`.

    ValueError unless `name` is a relative path without `..` (on any system) and leads through no symbolic link.
    """
    parts = PureWindowsPath(name).parts if isinstance(name, str) else ("..",)  # splits at both separators
    if ".." in parts or not isinstance(name, str) or PureWindowsPath(name).anchor or "\\" in name or "\0" in name:
        raise ValueError(f"{field}: {name!r} is not allowed; allowed: a relative path below {folder}, without ..")
    path = folder
    for part in parts:
        path = path / part
        refuse_link(path)
    return path


def check_name(name: object, field: str) -> None:
    """ValueError unless `name` can be the name of a listed file: no separator, no leading dot."""
    if not isinstance(name, str) or not name or name.startswith(".") or set(name) & set("/\\\0"):
        raise ValueError(
            f"{field}: {name!r} is not allowed; allowed: a name without / and \\, not beginning with a dot"
        )


def refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise ValueError(f"{path}: is a symbolic link, which is never followed; replace it with its target")


def refuse_links(folder: Path) -> None:
    """ValueError naming a symbolic link below `folder`, at any depth. `folder` itself may be one: the user typed it."""
    for parent, folders, files in os.walk(folder):
        for name in sorted([*folders, *files]):
            refuse_link(Path(parent, name))
