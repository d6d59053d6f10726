"""Exit codes, the same in every command and in the processes that it starts."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    PASSED = 0
    FAILED = 1  # an arm failed, or what was compared regressed
    BAD_INPUT = 2
    INCONCLUSIVE = 3  # where that was asked to count
    INVALID = 4  # what was measured allows no verdict
    NOT_COMPARABLE = 5
    WRONG = 6  # outputs that must not differ do
    INTERRUPTED = 130


class NotComparableError(ValueError):
    """Ends with ExitCode.NOT_COMPARABLE: the sides differ in what must be the same for their figures to be compared."""


class InvalidError(ValueError):
    """Ends with ExitCode.INVALID: what was measured is not enough."""
