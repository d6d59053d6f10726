"""Steady rounds of SGLang, whose scheduler traces itself in its own process: run in the child."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from wire import SETTLING, Ended, Step

if TYPE_CHECKING:
    from specbench.harness.engines.child.wire import Traced


class SteadyWatch:
    """Receives a block's steps and ends. `times_ns`: of the full decode rounds since the last other step."""

    def __init__(self, batch_size: int, num_rounds: int):
        self._batch_size, self._num_rounds = batch_size, num_rounds
        self.times_ns: list[int] = []
        self.has_ended = False  # a request has ended: the batch is no longer full
        self._num_before = 0
        self._error = ""

    def step(self, step: Step) -> None:
        is_full = len(step.rows) == self._batch_size and not any(row.is_prefill for row in step.rows)
        self.times_ns = [*self.times_ns, step.t_host_ns - step.t_start_ns] if is_full else []

    def end(self, ended: Ended) -> None:
        self.has_ended, self.times_ns = True, []
        self._error = self._error or ended.error

    @property
    def is_settled(self) -> bool:
        """The unprofiled rounds are over."""
        return len(self.times_ns) >= SETTLING + self._num_rounds

    def begin(self) -> None:
        self._num_before = len(self.times_ns)

    @property
    def is_over(self) -> bool:
        """Two more: the trace is written before the second can end. A step that was not full starts anew."""
        num = len(self.times_ns)
        return self.has_ended or num < self._num_before or num >= self._num_before + self._num_rounds + 2

    def traced(self, note: str) -> Traced:
        """ValueError if the batch was not always full; RuntimeError with the reason if a request failed."""
        if self._error:
            raise RuntimeError(self._error)
        if self.has_ended or len(self.times_ns) < self._num_before + self._num_rounds:
            raise ValueError(
                f"rounds: {self._num_rounds} is not allowed; the batch was not steady for so long; lower --rounds, "
                "raise --max-model-len or lower --max-concurrency"
            )
        first = self._num_before
        return {
            "round_ns": self.times_ns[first : first + self._num_rounds],
            "unprofiled_ns": self.times_ns[first - self._num_rounds : first],
            "notes": [note],
        }


def only_trace(folder: Path) -> Path:
    """The file that SGLang's profiler wrote. RuntimeError unless it is exactly one."""
    found = sorted(folder.glob("*.trace.json.gz"))
    if len(found) != 1:
        raise RuntimeError(f"SGLang's profiler left {len(found)} traces instead of one")
    return found[0]


def profile_request(tool: str, folder: str, num_rounds: int) -> object:
    """What SGLang is asked to profile: `num_rounds` forwards, for nsys or by torch's profiler into `folder`."""
    from sglang.srt.managers.io_struct import ProfileReq

    activities = ["CUDA_PROFILER"] if tool == "nsys" else ["CPU", "GPU"]
    return ProfileReq(
        output_dir=folder, num_steps=num_rounds, activities=activities, with_stack=False, record_shapes=False
    )
