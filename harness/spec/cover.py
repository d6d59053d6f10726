"""A pairwise cover of the legal combinations: few arms in which any two compatible choices occur together at least
once.

Most faults need only two interacting switches (Kuhn, Wallace, Gallo 2004), so a cover of all pairs finds them with
about thirty arms, while the full product has hundreds. spec/legality.py decides what is legal. The cover grows
greedily: each new arm adds the most uncovered pairs (AETG, Cohen et al. 1997). Several orders of the candidates are
tried, and the smallest cover is taken. The same machine gets the same arms every time.

Two special cases. A strategy that declares `same_rounds_as` another (naive-eagle: eagle with the plan `one_and_full`)
counts as that other strategy here, and appears under its own name with that plan. The first pass of an unpadded drafter
cannot be captured in a graph of its own: under plans that would capture it, it runs in piecewise graphs, as with
`graph=auto`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from specbench.harness.registry import BASELINE, declared_strategies, strategy_class

from .arm import CheckArm, parse_arm
from .choices import ALLOWED, allowed
from .plans import PLANS

_NUM_ORDERS = 60
_FULL_FIRST = ("full_decode_only", "full_and_piecewise")  # an unpadded drafter allows all but the first pass


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of each switch."""

    strategy: str
    drafter: str
    attention: str
    graph: str
    sync: str
    state_update: str

    def text(self) -> str:
        """A strategy argument."""
        own_name = {(kind.same_rounds_as, kind.graph): kind.name for kind in declared_strategies()}
        name = own_name.get((self.strategy, self.graph), self.strategy)
        words = [options] if (options := strategy_class(self.strategy).cover_options) else []
        words += [f"{key}={getattr(self, key)}" for key in ("attention", "graph", "sync", "state_update")]
        if self.drafter == "unpadded":
            words.append("drafter=unpadded")
            words += ["graph_first=piecewise"] if self.graph in _FULL_FIRST else []
        return f"{name}:{','.join(words)}"

    def pairs(self) -> frozenset[Pair]:
        """All pairs of two switches with their values."""
        return frozenset(itertools.combinations(asdict(self).items(), 2))


Pair = tuple[tuple[str, str], tuple[str, str]]


def legal_cells(device: str, check: CheckArm) -> list[Cell]:
    """Every combination that may run on `device` with the packages of this machine; `check` resolves arms for it."""
    # On a GPU, torch's own attention is the reference for the other backends, not a choice of its own.
    attention = [a for a in allowed("attention") if a != "auto" and (a, device) != ("torch", "cuda")]
    sync = [s for s in ALLOWED["sync"] if s != "auto"]
    strategies = [kind.name for kind in declared_strategies() if kind.cover_options is not None]
    choices = (strategies, ALLOWED["drafter"], attention, PLANS, sync, allowed("state_update"))
    return [cell for values in itertools.product(*choices) if _is_legal(cell := Cell(*values), check)]


def _is_legal(cell: Cell, check: CheckArm) -> bool:
    try:
        drafter = check(parse_arm(cell.text())).setup().drafter
    except ValueError:
        return False
    return (drafter or "padded") == cell.drafter  # without a drafter, there is no such choice


def pairwise_cover(device: str, check: CheckArm) -> list[Cell]:
    """A cover that starts with the plain baseline and contains every pair of choices that occurs in any legal cell."""
    legal = legal_cells(device, check)
    assert legal, "the torch backend runs on any CPU, Triton or another backend on any GPU"
    baseline = next(
        c for c in legal if (c.strategy, c.graph, c.sync, c.state_update) == (BASELINE, "none", "single", "torch")
    )
    orders = (random.Random(number).sample(legal, len(legal)) for number in range(_NUM_ORDERS))
    return min((_grown([baseline], order) for order in orders), key=len)


def _grown(cover: Sequence[Cell], candidates: Sequence[Cell]) -> list[Cell]:
    """The cover with candidates added until no pair is uncovered; ties go to the first candidate."""
    bits: dict[Pair, int] = {}

    def mask(cell: Cell) -> int:
        return sum(1 << bits.setdefault(pair, len(bits)) for pair in cell.pairs())

    masks = [mask(cell) for cell in candidates]  # pairs as bits, since counting them dominates the run time
    uncovered = (1 << len(bits)) - 1
    grown = list(cover)
    for cell in grown:
        uncovered &= ~mask(cell)
    while uncovered:
        best = max(range(len(masks)), key=lambda i: (masks[i] & uncovered).bit_count())
        grown.append(candidates[best])
        uncovered &= ~masks[best]
    return grown
