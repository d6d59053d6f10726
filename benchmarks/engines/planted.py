"""Regressions planted in vLLM, as `sitecustomize` on PYTHONPATH: in each call of its scheduler a wait of the host of
PLANTED_MS, a kernel that keeps the GPU busy for PLANTED_GPU_MS, or with PLANTED_SYNC=1 one wait for the GPU.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import time
from importlib.machinery import ModuleSpec

SCHEDULER = "vllm.v1.core.sched.scheduler"


@functools.cache
def _cycles_per_ms() -> float:
    import torch

    cycles = 10_000_000
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(cycles)  # the clock rises
    start.record()
    torch.cuda._sleep(cycles)
    end.record()
    end.synchronize()
    return cycles / start.elapsed_time(end)


def _plant() -> None:
    delay_s = float(os.environ.get("PLANTED_MS", "0")) / 1e3
    if delay_s >= 1e-3:
        time.sleep(delay_s)
    else:  # a short sleep lasts 50 us longer than asked
        end = time.perf_counter() + delay_s
        while time.perf_counter() < end:
            pass
    if gpu_ms := float(os.environ.get("PLANTED_GPU_MS", "0")):
        import torch

        torch.cuda._sleep(round(gpu_ms * _cycles_per_ms()))
    if os.environ.get("PLANTED_SYNC") == "1":
        import torch

        torch.cuda.synchronize()


class _Finder:
    """Stands before Python's own finders until the scheduler is imported, and loads it with the regression."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != SCHEDULER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def load_planted(module) -> None:
            load(module)
            schedule = module.Scheduler.schedule

            def planted(scheduler, *args, **kwargs):
                _plant()
                return schedule(scheduler, *args, **kwargs)

            module.Scheduler.schedule = planted

        spec.loader.exec_module = load_planted
        return spec


sys.meta_path.insert(0, _Finder())
