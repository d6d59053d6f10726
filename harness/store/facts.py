"""What an engine may not know, and the reason that stands in the place of a figure then."""

from __future__ import annotations

from enum import Enum


class Fact(str, Enum):
    """What figures are made of besides texts and host times, which every engine gives."""

    TOKEN_IDS = "token_ids"
    DEVICE_TIMES = "device_times"
    ROUNDS = "rounds"  # steps of the engine with their times and sizes
    ACCEPTANCE = "acceptance"
    PHASES = "phases"
    GRAPHS = "graphs"
    SYNCS = "syncs"
    PREEMPTIONS = "preemptions"
    SCORES = "scores"
