"""Warm-up by time: continue until two successive windows of rounds agree, or the time is up.

A fixed number of iterations warms a small model too little and a large one too long; clocks, allocators and lazily
loaded kernels settle with time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median


@dataclass(kw_only=True, slots=True)
class WarmUp:
    """Receives round durations and determines when they are stable.

    window_s: minimum length of a window, as a sum of durations. tolerance: the medians of two successive windows may
    differ by less than this fraction. max_s: stop after this much time, stable or not. Raises ValueError for invalid
    values.
    """

    window_s: float = 1.0
    tolerance: float = 0.02
    max_s: float = 30.0
    elapsed_s: float = field(default=0.0, init=False)
    num_rounds: int = field(default=0, init=False)
    is_stable: bool = field(default=False, init=False)
    _window: list[float] = field(default_factory=list, init=False)
    _window_s: float = field(default=0.0, init=False)
    _previous_median_s: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        for name in ("window_s", "tolerance", "max_s"):
            value = getattr(self, name)
            if not value > 0:
                raise ValueError(f"{name}: {value} not allowed; allowed: more than 0")

    @property
    def is_done(self) -> bool:
        """Stable, or out of time."""
        return self.is_stable or self.elapsed_s >= self.max_s

    def add(self, duration_s: float) -> bool:
        """Take one round's duration; returns `is_done`."""
        self.elapsed_s += duration_s
        self.num_rounds += 1
        self._window.append(duration_s)
        self._window_s += duration_s
        if self._window_s >= self.window_s:
            self._close_window()
        return self.is_done

    def describe(self) -> str:
        """For the run record: `stable after 3.1 s (412 rounds)`."""
        state = "stable" if self.is_stable else "not stable"
        return f"{state} after {self.elapsed_s:.1f} s ({self.num_rounds} round{'s' * (self.num_rounds != 1)})"

    def _close_window(self) -> None:
        now_s = median(self._window)
        before_s = self._previous_median_s
        if before_s is not None and abs(now_s - before_s) < self.tolerance * before_s:
            self.is_stable = True
        self._previous_median_s = now_s
        self._window, self._window_s = [], 0.0
