"""Intervals over the rounds of two profiles: how much of a difference may come from which rounds were recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from specbench.harness.profiling.record import Profile, RoundFigures
from specbench.harness.stats.spread import NUM_RESAMPLES

MIN_ROUNDS = 5  # a side
_SEED = 34_880  # fixed: the same profiles always give the same report

_Values = Callable[[Profile], Sequence[float]]
_Statistic = Callable[..., NDArray[np.float64]]


def _of(name: str) -> _Values:
    def values(profile: Profile) -> Sequence[float]:
        rounds: RoundFigures | None = profile.rounds
        return () if rounds is None else getattr(rounds, name)

    return values


# By the statistic that the headline shows: the interval of another statistic need not contain the shown change.
_FIGURES: dict[str, tuple[_Values, _Statistic]] = {
    "launches a round": (_of("launches"), np.mean),
    "graph launches a round": (_of("graph_launches"), np.mean),
    "synchronisations a round": (_of("syncs"), np.mean),
    "wait of the host a round": (_of("wait_ns"), np.mean),
    "late wait of the host a round": (_of("late_wait_ns"), np.mean),
    "verify to draft, idle": (lambda p: p.idle.verify_to_draft_by_round_ns, np.median),
    "GPU idle a round": (lambda p: p.idle.by_round_ns, np.mean),
    "GPU busy a round": (_of("gpu_busy_ns"), np.mean),
    "round under the profiler": (_of("round_ns"), np.median),
}
_MEDIANS = " and ".join(f"'{name}'" for name, (_, statistic) in _FIGURES.items() if statistic is np.median)
NOTE = (
    "In brackets: 95% bootstrap interval of the change over the rounds of both traces. Each side is one process, "
    "so differences between processes are not covered. A change and its interval use the same statistic of the rounds: "
    f"the median for {_MEDIANS}, the mean for all others."
)


def change_interval(name: str, a: Profile, b: Profile) -> tuple[float, float] | None:
    """The interval of B - A; None for a figure that is not per round, and for too few rounds."""
    if name not in _FIGURES:
        return None
    values, statistic = _FIGURES[name]
    sides = [np.asarray(values(profile), dtype=float) for profile in (a, b)]
    if min(map(len, sides)) < MIN_ROUNDS:
        return None
    random = np.random.default_rng(_SEED)
    drawn = [side[random.integers(len(side), size=(NUM_RESAMPLES, len(side)))] for side in sides]
    low, high = np.quantile(statistic(drawn[1], axis=1) - statistic(drawn[0], axis=1), [0.025, 0.975])
    return float(low), float(high)
