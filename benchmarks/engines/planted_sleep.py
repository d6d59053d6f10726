"""A slow-down planted in vLLM: as `sitecustomize` on PYTHONPATH it sleeps PLANTED_MS in each step's scheduling."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from importlib.machinery import ModuleSpec

SCHEDULER = "vllm.v1.core.sched.scheduler"


class _Finder:
    """Stands before Python's own finders until the scheduler's module is asked for, and loads it with the sleep."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != SCHEDULER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def load_slow(module) -> None:
            load(module)
            schedule, delay_s = module.Scheduler.schedule, float(os.environ["PLANTED_MS"]) / 1e3

            def slow(scheduler, *args, **kwargs):
                time.sleep(delay_s)
                return schedule(scheduler, *args, **kwargs)

            module.Scheduler.schedule = slow

        spec.loader.exec_module = load_slow
        return spec


sys.meta_path.insert(0, _Finder())
