"""Which of the target's hidden states a drafter continues from."""

from __future__ import annotations

from enum import Enum


class Features(Enum):
    NONE = "none"
    AUX = "aux"
    """The residual streams entering three layers, concatenated, [T, 3H]: EAGLE-3."""
    FINAL = "final"
    """The final-normed hidden state that lm_head consumes, [T, H]: EAGLE-1 and EAGLE-2."""
