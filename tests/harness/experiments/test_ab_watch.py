"""What is seen beside a block: with a made-up GPU, with one that fails, and what is said where nothing can be seen."""

from __future__ import annotations

import sys
import threading
import types

from specbench.harness.experiments import ab_watch as module
from specbench.harness.experiments.ab_watch import Watch, find_probe


class Gpu:
    """`throttled_at`: the samples that see `throttling`, all without it; `sampled` is set at the third sample."""

    def __init__(self, throttling=(), num_processes=1, error: Exception | None = None, throttled_at=None):
        self._reasons, self._num, self._error, self._at = frozenset(throttling), num_processes, error, throttled_at
        self._num_samples, self.sampled = 0, threading.Event()

    def throttling(self) -> frozenset[str]:
        if self._error:
            raise self._error
        self._num_samples += 1
        if self._num_samples == 3:
            self.sampled.set()
        return self._reasons if self._at in (None, self._num_samples) else frozenset()

    def num_processes(self) -> int:
        return self._num


def watched(probe) -> Watch:
    with Watch(probe) as watch:
        pass  # it samples at least once
    return watch


def test_a_quiet_block():
    seen = watched(Gpu())
    assert seen.reasons == () and seen.unchecked == ()
    load_average = seen.record("A", 0, 0).load_average
    assert len(load_average) == 2 and all(value is not None and value >= 0 for value in load_average)
    assert watched(None).reasons == ()


def test_throttling_and_company():
    assert watched(Gpu({"hardware slowdown"})).reasons == ("throttled: hardware slowdown",)
    assert watched(Gpu(num_processes=3)).reasons == ("2 foreign processes on the GPU",)


def test_a_passing_throttle_is_seen(monkeypatch):
    monkeypatch.setattr(module, "SAMPLE_INTERVAL_S", 0.001)
    gpu = Gpu({"hardware thermal slowdown"}, throttled_at=2)
    with Watch(gpu) as watch:
        assert gpu.sampled.wait(60)
    assert watch.reasons == ("throttled: hardware thermal slowdown",)


def test_a_driver_that_fails_is_said_and_not_raised():
    seen = watched(Gpu(error=RuntimeError("GPU is lost")))
    assert seen.reasons == () and "GPU is lost" in seen.unchecked[0]


def fake_nvml(**changes) -> types.SimpleNamespace:
    class NVMLError(Exception):
        pass

    calls = {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByIndex": lambda index: f"gpu {index}",
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 0x04 | 0x40 | 0x01,
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: ["ours"],
    }
    return types.SimpleNamespace(**{**calls, **changes})


def test_nvml(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    probe, unchecked = find_probe("cuda", {"CUDA_VISIBLE_DEVICES": "3,1"})
    assert unchecked == [] and probe.handle == "gpu 3" and probe.num_processes() == 1
    assert probe.throttling() == {"hardware thermal slowdown"}, "idle and the power limit are no faults"
    probe, _ = find_probe("cuda", {"CUDA_VISIBLE_DEVICES": "GPU-1234"})
    assert probe.handle == "GPU-1234"
    assert find_probe("cuda", {})[0].handle == "gpu 0"


def test_what_cannot_be_checked_is_said(monkeypatch):
    assert "load average" in find_probe("cpu", {})[1][0]
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "pip install nvidia-ml-py" in find_probe("cuda", {})[1][0]
    broken = fake_nvml()

    def no_driver() -> None:
        raise broken.NVMLError("driver not loaded")

    broken.nvmlInit = no_driver
    monkeypatch.setitem(sys.modules, "pynvml", broken)
    probe, unchecked = find_probe("cuda", {})
    assert probe is None and "driver not loaded" in unchecked[0]
