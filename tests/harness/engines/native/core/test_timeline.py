"""Device times on the host's clock, with a device whose clock runs slower and whose elapsed times are float32."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from specbench.harness.engines.native.core import status
from specbench.harness.engines.native.core.status import DeviceTimeline

SECOND = 10**9


class Machine:
    """`now_ns` is the host's time. An event is reached `delay_ns` after it was recorded."""

    def __init__(self, drift: float, delay_ns: int = 4000):
        self.now_ns, self._drift, self._delay_ns = 10**12, drift, delay_ns

    def record(self) -> SimpleNamespace:
        at_ns = self.now_ns + self._delay_ns
        device_ms = at_ns * (1 + self._drift) / 1e6

        def elapsed_ms(later: SimpleNamespace) -> float:
            return float(np.float32(later.device_ms - device_ms))

        def wait() -> None:
            self.now_ns = max(self.now_ns, at_ns + self._delay_ns)

        return SimpleNamespace(at_ns=at_ns, device_ms=device_ms, elapsed_time=elapsed_ms, synchronize=wait)


@pytest.fixture
def machine(monkeypatch) -> Machine:
    made = Machine(drift=-15e-6)
    monkeypatch.setattr(status, "time", SimpleNamespace(perf_counter_ns=lambda: made.now_ns))
    return made


def test_after_minutes_an_aligned_timeline_is_right_and_another_is_not(machine):
    old, aligned = DeviceTimeline(machine.record), DeviceTimeline(machine.record)
    machine.now_ns += 400 * SECOND
    aligned.align()
    machine.now_ns += 90 * SECOND  # a long block
    event = machine.record()
    assert abs(old.ns(event) - event.at_ns) > 7_000_000
    assert abs(aligned.ns(event) - event.at_ns) < 20_000


def test_rounds_are_not_rounded_to_the_steps_of_a_long_elapsed_time(machine):
    timeline = DeviceTimeline(machine.record)
    machine.now_ns += 400 * SECOND
    timeline.align()
    events = []
    for _ in range(100):
        machine.now_ns += 740_000
        events.append(machine.record())
    rounds_ns = np.diff([timeline.ns(event) for event in events])
    assert abs(rounds_ns - 740_000).max() < 1000


def test_the_clearest_of_several_readings_counts(machine, monkeypatch):
    """An interrupt between reading the host's clock and the device's."""
    delays = iter([9_000_000, 900_000, 4_000, 900_000, 9_000_000])

    def record() -> SimpleNamespace:
        event = machine.record()
        machine.now_ns += next(delays)
        return event

    timeline = DeviceTimeline(record)
    event = machine.record()
    assert abs(timeline.ns(event) - event.at_ns) < 4_000


def test_a_short_time_says_nothing_about_the_drift(machine):
    timeline = DeviceTimeline(machine.record)
    machine.now_ns += SECOND
    timeline.align()
    machine.now_ns += SECOND
    event = machine.record()
    assert event.at_ns - timeline.ns(event) == pytest.approx(15_000, abs=1_000)


def test_without_a_device_of_its_own_the_hosts_time_counts(machine):
    timeline = DeviceTimeline(None)
    timeline.align()
    assert timeline.ns(None) == machine.now_ns
