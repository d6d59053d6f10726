"""What an A/B experiment is asked to do, fixed before its first block and stored whole in the run record."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LABELS = ("A", "B")
MANIFEST_KEY = "ab"


class NotComparableError(ValueError):
    """The sides differ in what must be the same for their figures to be compared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One side: `text` as typed, `words` the options of `specbench run` that measure it, and the code it runs.

    ref, sha: a git revision of the checkout, as typed and as found; None for the code that runs this command.
    """

    label: str
    text: str
    words: tuple[str, ...]
    ref: str | None = None
    sha: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AbPlan:
    """Both sides, the number of blocks, and the rules of the verdict. Raises ValueError for values that cannot work.

    min_effect: the smallest change that matters, a fraction. min_same_output: share of prompts whose tokens must be the
    same on both sides. in_process: both engines live in one process and alternate; else each block of each side is a
    process of its own. checkout: where the refs are looked up.
    """

    sides: tuple[Side, Side]
    num_blocks: int = 10
    min_effect: float = 0.01
    min_same_output: float = 0.0
    order_seed: int = 42
    in_process: bool = False
    allow_mismatch: bool = False
    checkout: str | None = None

    def __post_init__(self) -> None:
        if self.num_blocks < 1:
            raise ValueError(f"blocks: {self.num_blocks} is not allowed; must be >= 1 (6 or more for a verdict)")
        if not 0 < self.min_effect < 1:
            raise ValueError(f"min_effect: {self.min_effect:g} is not allowed; allowed: above 0% and below 100%")
        if not 0 <= self.min_same_output <= 1:
            raise ValueError(f"min_same_output: {self.min_same_output:g} is not allowed; allowed: 0% to 100%")

    def side(self, label: str) -> Side:
        return self.sides[LABELS.index(label)]

    def order(self) -> list[tuple[str, str]]:
        """Which side goes first in each block: of every two blocks one starts with A and one with B, drawn by seed.

        Balanced pairs cancel what goes on over time (a machine warming up) as well as what the first of two suffers.
        """
        draw = random.Random(self.order_seed)
        order: list[tuple[str, str]] = []
        while len(order) < self.num_blocks:
            first = draw.choice((("A", "B"), ("B", "A")))
            order += [first, (first[1], first[0])]
        return order[: self.num_blocks]

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "order": ["".join(pair) for pair in self.order()]}

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> AbPlan:
        """The plan of a stored experiment; ValueError for one that this version did not write."""
        values = {key: value for key, value in raw.items() if key != "order"}
        try:
            a, b = (Side(**{**side, "words": tuple(side["words"])}) for side in raw["sides"])
            return AbPlan(**{**values, "sides": (a, b)})
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"ab: run.json was not written by this version ({error}); use the specbench that wrote it"
            ) from error
