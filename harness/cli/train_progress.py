"""Progress of `train-head` on stderr: a bar per stage on a terminal, periodic lines elsewhere."""

from __future__ import annotations

import time

from rich.progress import TaskID

from specbench.harness.run.remaining import duration
from specbench.harness.training.generate import GenerateStats
from specbench.harness.training.trainer import LogRow

from .progress import LINE_EVERY_S, RunProgress


class TrainProgress(RunProgress):
    """Shows the progress of a training (`TrainingProgress`)."""

    def __init__(self, quiet: bool):
        super().__init__(quiet)
        self._stages: dict[str, TaskID] = {}
        # By stage: the amount done at its first report, and the time of that report.
        self._stage_began: dict[str, tuple[int, float]] = {}
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

    def _left(self, stage: str, done: int, total: int) -> str:
        """`, about 3 min left`, at the speed so far; the part done before a resumed stage does not count."""
        now = time.monotonic()
        first, began = self._stage_began.setdefault(stage, (done, now))
        if not first < done < total:
            return ""
        return f", about {duration((now - began) / (done - first) * (total - done))} left"

    def _show(self, stage: str, done: int, total: int, note: str, last: bool) -> None:
        note += self._left(stage, done, total)
        if self._bars is None:
            now = time.monotonic()
            if last or now - self._last_line_s >= LINE_EVERY_S:
                self._last_line_s = now
                self.say(f"{stage}: {done:,} of {total:,}; {note}")
            return
        if stage not in self._stages:
            self._stages[stage] = self._bars.add_task(stage, total=total, note="")
        self._bars.update(self._stages[stage], completed=done, total=total, note=note)
