"""The table of planted faults in the repository says what a fresh run finds, and every fault is caught."""

from __future__ import annotations

import pytest
from harness.quality.fault_table import CHECKS, FILE, HEAD, NOTES, bf16_certificate, rows

DRAFTER = {
    "drafter's position off by one",
    "wrong d2t",
    "drafter's keys overwritten by padding rows",
    "drafter's first page overwritten",
}


def _stored() -> dict[str, tuple[str, ...]]:
    """By fault: verdicts of exact match and accuracy, then a cell for each check."""
    lines = [line.strip("| \n") for line in FILE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][2:]
    cells = [[cell.strip() for cell in f"{line} ".split("|")] for line in lines]
    padded = [row + [""] * (4 + len(CHECKS) - len(row)) for row in cells]
    return {row[0]: tuple(c.rpartition(": ")[2] for c in row[2:4]) + tuple(row[4:]) for row in padded}


def test_the_stored_text_is_the_script_s():
    text = FILE.read_text(encoding="utf-8")
    assert text.startswith(HEAD) and text.endswith(NOTES), "run tests/harness/quality/fault_table.py"


@pytest.mark.slow
def test_the_stored_table_has_the_checks_of_a_fresh_run():
    found = rows()
    fresh = {r.fault: tuple(c.rpartition(": ")[2] for c in r.cells()[2:4]) + r.cells()[4:] for r in found}
    assert _stored() == fresh, "run tests/harness/quality/fault_table.py"
    assert all(row.caught_by for row in found)
    for row in found:
        if row.fault in DRAFTER:
            assert row.caught_by == {"acceptance"} and not row.shows_in_exact_match, row.fault


def test_a_correct_engine_passes_in_bf16(tmp_path):
    certificate = bf16_certificate(tmp_path, lambda engine: None)
    assert certificate.problems == () and certificate.num_exact < certificate.num_prompts, "near-ties flip"
    assert certificate.excess.total < 1.5 * certificate.excess.target_total
