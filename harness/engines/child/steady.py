"""Times steady steps of an engine that we drive step by step, first without and then with a profiler.

Standard library only, because it runs in the child.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from capture import Capture
from wire import SETTLING, Step, Traced

_MAX_FILLING_STEPS = 10_000  # until every prompt is read


class Ranges:
    """Ranges installed around an engine's calls; without tracing they cost one look-up."""

    def __init__(self) -> None:
        self.capture = Capture()

    def __call__(self, name: str) -> AbstractContextManager[object]:
        return self.capture.range(name)

    def around(self, owner: object, method: str, name: str) -> None:
        """From now on, each call of this method is a range."""
        plain = getattr(owner, method)

        def ranged(*args: object, **kwargs: object) -> object:
            with self(name):
                return plain(*args, **kwargs)

        setattr(owner, method, ranged)


def trace_steps(
    step: Callable[[], Iterable[Step]], batch_size: int, num_rounds: int, ranges: Ranges, capture: Capture
) -> Traced:
    """Calls `step`, which returns the steps that have ended since, until the whole batch decodes. Then it runs
    `num_rounds` steps twice, the second time under `capture`. ValueError if the batch does not stay full."""
    capture.arm()
    try:
        _fill(step, batch_size)
        unprofiled_ns, seen = _timed(step, num_rounds, Capture())
        ranges.capture = capture
        capture.begin()
        round_ns, of_trace = _timed(step, num_rounds, capture)
    except BaseException:
        capture.drop()
        raise
    finally:
        ranges.capture = Capture()
    capture.end()
    odd = [each for each in (*seen, *of_trace) if not _is_full(each, batch_size)]
    if odd or not of_trace:
        raise ValueError(
            f"rounds: {num_rounds} is not allowed; the batch was not steady: {len(odd)} steps were not decode rounds "
            f"of {batch_size} requests; lower --rounds, raise --max-model-len or lower --max-concurrency"
        )
    return {"round_ns": round_ns, "unprofiled_ns": unprofiled_ns, "notes": []}


def _fill(step: Callable[[], Iterable[Step]], batch_size: int) -> None:
    for _ in range(_MAX_FILLING_STEPS):
        if any(_is_full(each, batch_size) for each in step()):
            break
    for _ in range(SETTLING):
        step()


def _timed(step: Callable[[], Iterable[Step]], num_rounds: int, capture: Capture) -> tuple[list[int], list[Step]]:
    """Duration of each step by the host's clock, and the steps that ended."""
    seen: list[Step] = []
    times_ns = [time.perf_counter_ns()]
    for number in range(num_rounds):
        with capture.range(f"specbench:step {number}"):
            seen += step()
        times_ns.append(time.perf_counter_ns())
    return [after - before for before, after in zip(times_ns, times_ns[1:], strict=False)], seen


def _is_full(step: Step, batch_size: int) -> bool:
    return len(step.rows) == batch_size and not any(row.is_prefill for row in step.rows)
