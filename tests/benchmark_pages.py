"""The pages of results in benchmarks/, for tests that compare what they say with the stored repeats."""

from __future__ import annotations

from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def lines_of(page: str) -> list[str]:
    return (BENCHMARKS / page).read_text(encoding="utf-8").splitlines()


def section(page: str, heading: str) -> list[str]:
    """Lines from this heading to the next, whatever its level."""
    lines = lines_of(page)
    headings = [at for at, line in enumerate(lines) if line.startswith("#")]
    (start,) = [at for at in headings if lines[at].lstrip("# ") == heading]
    return lines[start + 1 : min((at for at in headings if at > start), default=len(lines))]


def cells_of(line: str) -> list[str]:
    """Of a table's row."""
    return [cell.strip() for cell in line.split("|")[1:-1]]
