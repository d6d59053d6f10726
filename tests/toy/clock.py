"""A clock that tests move: what is measured by it depends on what the code does, not on how busy the machine is."""

from __future__ import annotations

import importlib
import random

import pytest
import torch

MEASURING = (
    "engines.native.core.clock",
    "engines.native.core.engine",
    "engines.native.core.readback",
    "engines.native.core.status",
    "engines.native.drive",
)


class Clock:
    """In place of the module `time`: a reading takes about `tick_ns`, with a seed's noise; a sleep its seconds."""

    def __init__(self, tick_ns: int = 100_000, noise: float = 0.01, seed: int = 0):
        self._now_ns, self._tick_ns, self._noise = 10**12, tick_ns, noise
        self._rng = random.Random(seed)

    def perf_counter_ns(self) -> int:
        self._now_ns += round(self._tick_ns * (1 + self._rng.uniform(-self._noise, self._noise)))
        return self._now_ns

    def perf_counter(self) -> float:
        return self.perf_counter_ns() / 1e9

    monotonic = perf_counter

    def sleep(self, seconds: float) -> None:
        self._now_ns += round(seconds * 1e9)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """The clock of everything that is measured in this process, on a CPU: a GPU has events of its own."""
    made = Clock()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in MEASURING:
        monkeypatch.setattr(importlib.import_module(f"specbench.harness.{name}"), "time", made)
    return made
