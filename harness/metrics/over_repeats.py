"""The figures of an arm's blocks as spreads over its repeats."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.harness.stats.spread import Spread, spreads
from specbench.harness.store.results import Figures

_BY_KIND = ("rounds_by_drafts.", "rounds_by_graph.")


def spreads_of(blocks: Sequence[Figures]) -> dict[str, Spread]:
    """By name, over the blocks that know the figure. A block that tells its rounds apart has 0 of a kind that only
    other blocks have: without it, one graph missed in one of three repeats would be the median of all."""
    values: dict[str, list[float]] = {}
    for figures in blocks:
        for name, value in figures.items():
            if value is not None:
                values.setdefault(name, []).append(float(value))
    for prefix in _BY_KIND:
        kinds = [name for name in values if name.startswith(prefix)]
        num_blocks = sum(any(kind in figures for kind in kinds) for figures in blocks)
        for kind in kinds:
            values[kind] += [0.0] * (num_blocks - len(values[kind]))
    return spreads(values)
