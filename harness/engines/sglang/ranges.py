"""Ranges around the calls of SGLang's workers that make up a round, one for each drafter pass; set by its scheduler.

The calls were determined from the sources of the versions in READ; other versions are unknown and get no ranges.
SGLang's own ranges are switched off, because they label a drafter pass as the target's. Passes after the first that one
graph replays are one range, `draft_rest`. A graph's range is only its replay: the copies and indices that SGLang
launches before it lie between the passes, as in vLLM.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from capture import NsysCapture

READ = ("0.5.16",)
Opened = Callable[[str], AbstractContextManager[object]]
_SRT = "sglang.srt"
FIRST, NEXT, REST = "specbench:draft_first", "specbench:draft_next", "specbench:draft_rest"


def about(version: str) -> str:
    """A note about the ranges for the reader of the trace."""
    if version not in READ:
        return f"SGLang {version}: no ranges; the calls of a round are known for {', '.join(READ)} only"
    return f"SGLang {version}: ranges around the calls of its scheduler and EAGLE workers, its own are off"


def opener(tool: str) -> Opened:
    """Ranges for nsys, or for torch's profiler while it runs."""
    if tool == "nsys":
        return NsysCapture().range
    import torch

    def recorded(name: str) -> AbstractContextManager[object]:
        return torch.profiler.record_function(name) if torch.autograd._profiler_enabled() else nullcontext()

    return recorded


def put_ranges(version: str, opened: Opened) -> None:
    """Installs the ranges in the classes, before the scheduler creates instances."""
    if version not in READ:
        return
    numbers, drafting = itertools.count(), [""]  # the name of a forward of the drafter, now

    def around(cls: Any, method: str, name: Callable[..., list[str]], passes: str | None = None) -> None:
        plain = getattr(cls, method)

        def ranged(self: Any, *args: Any, **kwargs: Any) -> Any:
            before, drafting[0] = drafting[0], drafting[0] if passes is None else passes
            try:
                with ExitStack() as stack:
                    for each in name(self, *args):
                        stack.enter_context(opened(each))
                    return plain(self, *args, **kwargs)
            finally:
                drafting[0] = before

        setattr(cls, method, ranged)

    def step(_: Any, batch: Any, *rest: Any) -> list[str]:
        kind = "prefill" if batch.forward_mode.is_extend() else "advance"
        return [f"specbench:step {next(numbers)} bs={len(batch.reqs)}", f"specbench:{kind}"]

    def always(name: str) -> Callable[..., list[str]]:
        return lambda *args: [name]

    def forward(runner: Any, *args: Any) -> list[str]:
        name = drafting[0] if runner.is_draft_worker else "specbench:verify"
        return [name] if name else []

    worker, runner = _module("speculative.eagle_worker_v2"), _module("model_executor.model_runner")
    worker.spec_stage_span = runner.profile_range = lambda *args, **kwargs: nullcontext()
    around(_module("managers.scheduler").Scheduler, "run_batch", step)
    around(_module("managers.tp_worker").TpModelWorker, "forward_batch_generation", always("specbench:accept"))
    around(runner.ModelRunner, "forward", forward)
    around(worker.EAGLEWorkerV2, "verify", always("specbench:accept"))
    around(worker.EagleDraftWorker, "draft", always("specbench:draft"), NEXT)
    around(worker.EagleDraftWorker, "_draft_extend_for_decode", always("specbench:draft"), FIRST)
    graphs = _module("speculative.eagle_draft_cuda_graph_runner").EAGLEDraftCudaGraphRunner
    around(graphs, "_replay_graph", always(REST))
    graphs = _module("speculative.eagle_draft_extend_cuda_graph_runner").EAGLEDraftExtendCudaGraphRunner
    around(graphs, "_replay_graph", always(FIRST))


def _module(name: str) -> Any:
    return importlib.import_module(f"{_SRT}.{name}")
