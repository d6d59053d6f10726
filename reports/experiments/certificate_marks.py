"""Marks that a certificate in a run directory adds to the run's other tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specbench.harness.store.codec import read_object
from specbench.reports.cells import NOT_LOSSLESS

FILE = "certificate.json"


def read_certificate(directory: Path) -> dict[str, Any] | None:
    """The certificate in a run directory, finished or not; ValueError for a damaged one."""
    path = directory / FILE
    if not path.is_file():
        return None
    return read_object(path, mend="remove it and certify again")


def failed_marks(directory: Path) -> dict[str, str]:
    """By arm, what to put beside every figure of an arm whose certificate failed."""
    marks: dict[str, str] = {}
    for row in (read_certificate(directory) or {"certificates": []})["certificates"]:
        if not row["ok"]:
            marks.setdefault(row["arm"], f"{NOT_LOSSLESS}: {row['problems'][0]}")
    return marks


def all_passed(certificate: Mapping[str, Any]) -> bool:
    """Whether it is finished and every arm passed."""
    rows = certificate["certificates"]
    return certificate["status"] == "complete" and bool(rows) and all(row["ok"] for row in rows)
