"""Byte-like prompts: readable text as ids below 128, its first id naming the request."""

from __future__ import annotations

import random

_WORDS = "the round accepts a draft and the target verifies what the drafter proposed before the next page".split()
VOCAB = 128


def text_prompt(first: int, length: int, seed: int = 0) -> tuple[int, ...]:
    """`length` ids: `first` (0..127), which scripted drafters look requests up by, then words that repeat."""
    assert 0 <= first < VOCAB and length >= 1
    rng = random.Random(seed * 1009 + first)
    text = ""
    while len(text) < length:
        text += rng.choice(_WORDS) + " "
    return (first, *text[: length - 1].encode())
