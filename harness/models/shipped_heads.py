"""Draft heads that come with the package (`harness/heads/NAME/`), found by the bytes of the target they are for."""

from __future__ import annotations

import json
from pathlib import Path

PREFIX = "shipped:"
_FOLDER = Path(__file__).resolve().parent.parent / "heads"


def shipped_names(folder: Path = _FOLDER) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("*/training.json"))


def shipped_head_for(target_sha256: str, folder: Path = _FOLDER) -> str | None:
    """`shipped:NAME` of the head for the target with these bytes; None where there is none."""
    for name in shipped_names(folder):
        record = json.loads((folder / name / "training.json").read_text())
        if target_sha256 and record["target"]["sha256"] == target_sha256:
            return f"{PREFIX}{name}"
    return None


def trained_on(head: str, folder: Path = _FOLDER) -> frozenset[str]:
    """Names of the data sets that `shipped:NAME` was trained on."""
    record = json.loads((shipped_folder(head, folder) / "training.json").read_text())
    return frozenset(data["name"] for data in record["data"])


def shipped_folder(head: str, folder: Path = _FOLDER) -> Path:
    """The folder of `shipped:NAME`. ValueError with the known names for another."""
    name = head.removeprefix(PREFIX)
    if name not in shipped_names(folder):
        known = ", ".join(f"{PREFIX}{known}" for known in shipped_names(folder)) or "none"
        raise ValueError(f"head: {head!r} is not known; shipped heads: {known}")
    return folder / name
