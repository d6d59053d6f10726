"""A pairwise cover of what may be combined: few arms in which every two legal choices meet at least once.

Faults of an engine mostly need two switches to meet (Kuhn, Wallace, Gallo 2004), so that a cover of all pairs finds
them with some thirty arms where the whole product has hundreds. spec/legality.py decides what is legal. The
cover grows greedily: each new arm has the most uncovered pairs (AETG, Cohen et al. 1997). Several orders of the
candidates are tried, and the smallest cover is taken. The same machine gets the same arms every time.

Two special cases. A strategy that declares `same_rounds_as` another (naive-eagle: eagle with the plan `one`) is
one strategy with it here, which goes by its own name in that plan. An unpadded drafter's first pass cannot be in a
graph of its own: under plans that would capture it, it is left to piecewise graphs, as `graph=auto` does.
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
_FULL_FIRST = ("full_decode_only", "full_and_piecewise")  # plans whose other parts an unpadded drafter allows


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
        """Every two switches with their values."""
        return frozenset(itertools.combinations(asdict(self).items(), 2))


Pair = tuple[tuple[str, str], tuple[str, str]]


def legal_cells(device: str, check: CheckArm) -> list[Cell]:
    """Every combination that may run on `device` with the packages of this machine; `check` resolves arms for it."""
    # On a GPU torch's own attention is the reference of the others, not something to run.
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
    return (drafter or "padded") == cell.drafter  # one without a drafter has no such choice


def pairwise_cover(device: str, check: CheckArm) -> list[Cell]:
    """The plain baseline first. Every pair of two choices that is in some legal cell is in one of these."""
    legal = legal_cells(device, check)
    assert legal, "the torch backend runs on any CPU, Triton or another backend on any GPU"
    baseline = next(
        c for c in legal if (c.strategy, c.graph, c.sync, c.state_update) == (BASELINE, "none", "single", "torch")
    )
    orders = (random.Random(number).sample(legal, len(legal)) for number in range(_NUM_ORDERS))
    return min((_grown([baseline], order) for order in orders), key=len)


def _grown(cover: Sequence[Cell], candidates: Sequence[Cell]) -> list[Cell]:
    """The cover with candidates added until no pair is missing; of equally good ones the first."""
    bits: dict[Pair, int] = {}

    def mask(cell: Cell) -> int:
        return sum(1 << bits.setdefault(pair, len(bits)) for pair in cell.pairs())

    masks = [mask(cell) for cell in candidates]  # pairs as bits: counting them is what takes the time
    missing = (1 << len(bits)) - 1
    grown = list(cover)
    for cell in grown:
        missing &= ~mask(cell)
    while missing:
        best = max(range(len(masks)), key=lambda i: (masks[i] & missing).bit_count())
        grown.append(candidates[best])
        missing &= ~masks[best]
    return grown
