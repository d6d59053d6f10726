"""Where SGLang keeps the class that `sglang.Engine` stands for."""

from sglang import SchedulerEngine as Engine

__all__ = ["Engine"]
