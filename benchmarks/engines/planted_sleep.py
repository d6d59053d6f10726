"""A sleep planted in vLLM's scheduler: what fraction of a step stands in PLANTED_MS."""

import importlib.util, os, sys, time


class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "vllm.v1.core.sched.scheduler":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            schedule, delay_s = module.Scheduler.schedule, float(os.environ["PLANTED_MS"]) / 1e3

            def slow(self, *args, **kwargs):
                time.sleep(delay_s)
                return schedule(self, *args, **kwargs)

            module.Scheduler.schedule = slow

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
