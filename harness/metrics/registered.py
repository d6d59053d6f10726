"""Figures by key, including those of other packages."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from specbench.harness.metrics.figures import Figure
from specbench.harness.registry import FIGURES, lookup


def figure(key: str) -> Figure:
    """ValueError as from `lookup`, and for something that is not a figure with that key; figures of other packages have
    an `of_block`."""
    value = lookup(FIGURES, key, "figure")
    if not (isinstance(value, Figure) and value.key == key and (key in FIGURES.built_in or value.of_block)):
        owner = FIGURES.owners(key)[0]
        raise ValueError(f"figure: {key!r} of {owner}: {FIGURES[key]} is not a figure of that key with an of_block")
    return value


def foreign_figures() -> list[Figure]:
    """The usable figures of other packages, under their own names among the figures of a block; `plug_ins` says why the
    rest cannot be used."""
    found = []
    for key in FIGURES.foreign:
        with contextlib.suppress(ValueError):
            found.append(replace(figure(key), block=f"figures.{key}"))
    return found
