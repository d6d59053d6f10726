"""Marks that a certificate in a run directory adds to the run's other tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specbench.harness.metrics.doubts import NOT_LOSSLESS
from specbench.harness.store.codec import read_object

FILE = "certificate.json"


def read_certificate(directory: Path) -> dict[str, Any] | None:
    """The certificate in a run directory, finished or not; ValueError for a damaged one."""
    path = directory / FILE
    if not path.is_file():
        return None
    return read_object(path, mend="remove it and certify again")


def certificate_rows(directory: Path) -> list[dict[str, Any]]:
    """Rows of a run's certificate; none if it is unfinished and has not failed. ValueError for a damaged one."""
    data = read_certificate(directory)
    if data is None:
        return []
    try:
        rows: list[dict[str, Any]] = [{**row, "ok": row["ok"], "arm": row["arm"]} for row in data["certificates"]]
        return rows if data["status"] == "complete" or any(not row["ok"] for row in rows) else []
    except (KeyError, TypeError) as error:
        raise ValueError(f"{directory / FILE}: damaged ({error!r}); remove it and certify again") from error


def failed_marks(directory: Path) -> dict[str, str]:
    """By arm, the mark for every figure of an arm whose certificate failed."""
    marks: dict[str, str] = {}
    for row in certificate_rows(directory):
        if not row["ok"]:
            marks.setdefault(row["arm"], f"{NOT_LOSSLESS}: {next(iter(row['problems']), 'its certificate failed')}")
    return marks


def all_passed(certificate: Mapping[str, Any]) -> bool:
    """Whether the certificate is finished and every arm passed."""
    rows = certificate["certificates"]
    return certificate["status"] == "complete" and bool(rows) and all(row["ok"] for row in rows)
