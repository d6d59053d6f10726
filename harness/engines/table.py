"""Which engine a run means."""

from __future__ import annotations

from specbench.harness.engines.base import Engine
from specbench.harness.registry import ENGINES, lookup


def open_engine(name: str) -> Engine:
    """A new engine object for one run. ValueError with the known names for an unknown one."""
    engine: Engine = lookup(ENGINES, name, "engine")()
    return engine
