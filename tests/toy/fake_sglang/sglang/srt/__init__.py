"""Stand-ins of the classes of SGLang 0.5.16 that our ranges go around: each calls the next as its sources do."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

from sglang.scheduler import run_scheduler


def profile_range(name: str) -> None:
    raise AssertionError(f"its own range {name!r} is still on")


class ModelRunner:
    def __init__(self, is_draft_worker: bool = False):
        self.is_draft_worker = is_draft_worker

    def forward(self, batch: Any) -> None:
        with module("model_executor.model_runner").profile_range("step[DECODE bs=1]"):
            pass


class TpModelWorker:
    def __init__(self) -> None:
        self.model_runner = ModelRunner()

    def forward_batch_generation(self, batch: Any) -> None:
        self.model_runner.forward(batch)


class DraftGraphs:
    """Copies and indices are launched by `execute`, before the replay."""

    def execute(self, batch: Any) -> None:
        self._replay_graph("bs=2", batch)

    def _replay_graph(self, shape_key: str, batch: Any) -> None: ...


class ExtendGraphs(DraftGraphs):
    def _replay_graph(self, shape_key: str, batch: Any) -> None: ...


class EagleDraftWorker:
    """Three passes a round."""

    def __init__(self, has_graphs: bool):
        self.runner, self.has_graphs = ModelRunner(is_draft_worker=True), has_graphs

    def draft(self, batch: Any) -> None:
        for _ in range(1 if self.has_graphs else 2):
            DraftGraphs().execute(batch) if self.has_graphs else self.runner.forward(batch)

    def _draft_extend_for_decode(self, batch: Any) -> None:
        ExtendGraphs().execute(batch) if self.has_graphs else self.runner.forward(batch)


class EAGLEWorkerV2:
    def __init__(self, has_graphs: bool):
        self.drafter, self.target = EagleDraftWorker(has_graphs), TpModelWorker()

    def forward_batch_generation(self, batch: Any) -> None:
        with module("speculative.eagle_worker_v2").spec_stage_span("draft"):
            self.drafter.draft(batch)
        self.verify(batch)
        self.drafter._draft_extend_for_decode(batch)

    def verify(self, batch: Any) -> None:
        self.target.forward_batch_generation(batch)


class Scheduler:
    def __init__(self, worker: EAGLEWorkerV2 | TpModelWorker):
        self.worker = worker

    def run_batch(self, batch: Any) -> None:
        self.worker.forward_batch_generation(batch)


@dataclass(kw_only=True)
class ProfileReq:
    output_dir: str
    num_steps: int
    activities: list[str]
    with_stack: bool
    record_shapes: bool


def batch_of(num_requests: int, *, is_extend: bool = False) -> Any:
    return SimpleNamespace(reqs=[None] * num_requests, forward_mode=SimpleNamespace(is_extend=lambda: is_extend))


_GRAPHS = "speculative.eagle_draft{}_cuda_graph_runner"
_MODULES: dict[str, dict[str, Any]] = {
    "model_executor.model_runner": {"ModelRunner": ModelRunner, "profile_range": profile_range},
    "managers.tp_worker": {"TpModelWorker": TpModelWorker},
    "managers.scheduler": {"Scheduler": Scheduler, "run_scheduler_process": run_scheduler},
    "managers.io_struct": {"ProfileReq": ProfileReq},
    _GRAPHS.format(""): {"EAGLEDraftCudaGraphRunner": DraftGraphs},
    _GRAPHS.format("_extend"): {"EAGLEDraftExtendCudaGraphRunner": ExtendGraphs},
    "speculative.eagle_worker_v2": {
        "EAGLEWorkerV2": EAGLEWorkerV2,
        "EagleDraftWorker": EagleDraftWorker,
        "spec_stage_span": profile_range,
    },
}


def module(name: str) -> Any:
    return sys.modules[f"sglang.srt.{name}"]


for _name, _names in _MODULES.items():
    _made = ModuleType(f"sglang.srt.{_name}")
    vars(_made).update(_names)
    sys.modules[f"sglang.srt.{_name}"] = _made
