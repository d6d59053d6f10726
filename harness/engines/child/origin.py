"""Checks that a package is imported from the requested folder. Standard library only, run in the child."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def check_findable(folder: str) -> None:
    """Check before the import, which may take long. ValueError if Python would import it from elsewhere."""
    name = Path(folder).name
    found = importlib.util.find_spec(name)
    _check(name, found.origin if found is not None else None, folder)


def check_imported(folder: str) -> None:
    """Checks all of its modules: an editable installation also finds modules that this revision lacks."""
    name = Path(folder).name
    for module, loaded in list(sys.modules.items()):
        file = getattr(loaded, "__file__", None)
        if module == name or (file is not None and module.startswith(f"{name}.")):
            _check(module, file, folder)


def _check(module: str, file: str | None, folder: str) -> None:
    if file is None or not Path(file).is_relative_to(folder):
        raise ValueError(f"ref: {module} comes from {file}, not from the revision's own files in {folder}")
