"""How an engine under test runs: device, graph plan, what the host waits for and which rows the drafter gets."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
import torch


@dataclass(frozen=True, slots=True)
class Plan:
    device: str
    graph: str = "none"
    sync: str = "single"
    status_lag: int = 0
    drafter: str = "padded"
    parts: tuple[tuple[str, str], ...] = ()  # (target | first | later | mixed, mode) that replace the plan's

    @property
    def name(self) -> str:
        words = [self.device, self.graph, *(f"{part}:{mode}" for part, mode in self.parts), f"lag{self.status_lag}"]
        words += [self.sync] * (self.sync == "multi") + [self.drafter] * (self.drafter != "padded")
        return "-".join(words)

    @property
    def torch_device(self) -> torch.device:
        return torch.device(self.device)

    @property
    def attention(self) -> str:
        return "triton" if self.device == "cuda" else "torch"

    @property
    def pads(self) -> bool:
        """Whether decode rounds are padded to the size of a captured one."""
        return self.graph not in ("none", "piecewise")


def late(device: str, graph: str, lag: int) -> Plan:
    return Plan(device, graph, "none", lag)


# Users are refused sync=none on a CPU because nothing is gained there; the engine's loop is the same, so it is tested.
CPU_PLANS = [Plan("cpu"), Plan("cpu", sync="multi"), late("cpu", "none", 1), late("cpu", "none", 4)]
# Every graph plan read at once, and each with one or two other policies: not the whole product, which adds no path.
GPU_PLANS = [
    *(Plan("cuda", graph) for graph in ("none", "piecewise", "full_decode_only", "full_and_piecewise", "full", "one")),
    late("cuda", "one_and_full", 1),
    *(Plan("cuda", graph, "multi") for graph in ("none", "full_decode_only", "full_and_piecewise")),
    *(late("cuda", graph, 1) for graph in ("full_and_piecewise", "one")),
    *(late("cuda", graph, 2) for graph in ("none", "full")),
    *(late("cuda", graph, 4) for graph in ("piecewise", "full_decode_only", "one")),
]
# One of each graph plan, the last three read a round late, as `auto` gives them.
MAIN_GPU_PLANS = [
    Plan("cuda"),
    Plan("cuda", "piecewise"),
    Plan("cuda", "full_decode_only"),
    late("cuda", "full", 1),
    late("cuda", "full_and_piecewise", 1),
    late("cuda", "one_and_full", 1),
]
CPU = CPU_PLANS[0]


def params(plans: list[Plan]) -> list:
    """The plans as values of a fixture or a parametrised test; those of a GPU are marked so."""
    return [pytest.param(p, id=p.name, marks=[pytest.mark.gpu] if p.device == "cuda" else []) for p in plans]


def spread(cases: Iterable[tuple[str, Any]], gpu_plans_a_case: int = 2) -> list:
    """(plan, case) for many named cases: all of them on the CPU, each on two of the main GPU plans."""
    chosen = []
    for index, (name, case) in enumerate(cases):
        # Drawn, not in turn: strategies and depths come in turn already, and would meet the same plans every time.
        for plan in (CPU, *random.Random(index).sample(MAIN_GPU_PLANS, gpu_plans_a_case)):
            marks = [pytest.mark.gpu] if plan.device == "cuda" else []
            chosen.append(pytest.param(plan, case, id=f"{plan.name}-{name}", marks=marks))
    return chosen
