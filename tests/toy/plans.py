"""How an engine under test runs: device, graph plan and how late the host reads."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Plan:
    device: str
    graph: str = "none"
    sync: str = "single"
    status_lag: int = 0

    @property
    def name(self) -> str:
        return f"{self.device}-{self.graph}-lag{self.status_lag}"

    @property
    def torch_device(self) -> torch.device:
        return torch.device(self.device)

    @property
    def attention(self) -> str:
        return "triton" if self.device == "cuda" else "torch"


# Users are refused sync=none on a CPU because nothing is gained there; the engine's loop is the same, so it is tested.
CPU_PLANS = [Plan("cpu"), *(Plan("cpu", sync="none", status_lag=lag) for lag in (1, 2, 4))]
GPU_PLANS = [
    Plan("cuda", graph, "none" if lag else "single", lag) for graph in ("none", "full", "one") for lag in (0, 1, 2, 4)
]
# Launched phases, separate graphs read at once, and what `auto` gives one graph: read a round late.
MAIN_GPU_PLANS = [Plan("cuda"), Plan("cuda", "full"), Plan("cuda", "one", "none", 1)]
CPU = CPU_PLANS[0]
