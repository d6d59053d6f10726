"""Progress of `train-head` on stderr: one bar a stage on a terminal, a line every so often elsewhere."""

from __future__ import annotations

import time

from rich.progress import TaskID

from specbench.harness.training.generate import GenerateStats
from specbench.harness.training.trainer import LogRow

from .progress import RunProgress

_LINE_EVERY_S = 15.0


class TrainProgress(RunProgress):
    """Shows what a training reports (`TrainingProgress`)."""

    def __init__(self, quiet: bool):
        super().__init__(quiet)
        self._stages: dict[str, TaskID] = {}
        self._last_line_s = 0.0

    def generated(self, stats: GenerateStats, num_samples: int) -> None:
        speed = stats.num_response_tokens / max(stats.seconds, 1e-9)
        note = (
            f"{stats.num_response_tokens / 1e6:.2f} M tokens, {speed / 1e3:.1f} k/s, "
            f"{stats.num_looped / max(stats.num_sequences, 1):.0%} loop"
        )
        self._show("responses", stats.num_samples, num_samples, note, last=stats.done)

    def trained(self, row: LogRow) -> None:
        speed = row.num_positions / max(row.seconds, 1e-9)
        rates = " ".join(f"{a:.3f}" for a in row.accuracy)
        note = f"loss {row.loss:.3f}, accuracy {rates}, {speed / 1e3:.0f} k positions/s"
        self._show("training", row.step, row.num_steps, note, last=row.step == row.num_steps)

    def _show(self, stage: str, done: int, total: int, note: str, last: bool) -> None:
        if self._bars is None:
            now = time.monotonic()
            if last or now - self._last_line_s >= _LINE_EVERY_S:
                self._last_line_s = now
                self.say(f"{stage}: {done:,} of {total:,}; {note}")
            return
        if stage not in self._stages:
            self._stages[stage] = self._bars.add_task(stage, total=total, note="")
        self._bars.update(self._stages[stage], completed=done, total=total, note=note)
