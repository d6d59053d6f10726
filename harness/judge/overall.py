"""What is said of a whole A/B experiment, beyond the verdicts of its metrics (verdict.py)."""

from __future__ import annotations

INVALID = "invalid"  # rejected blocks, or a change between equal sides
UNFINISHED = "unfinished"
MIXED = "mixed"  # a metric improved and another regressed: TPOT decides

MOST_REJECTED = 0.2
"""Share of rejected blocks beyond which the whole measurement is invalid."""


def decisive(verdict: str, product: str) -> str:
    """The verdict that counts: that of the whole; of one that goes both ways, TPOT's, `product`."""
    return product if verdict == MIXED else verdict
