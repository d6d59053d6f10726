"""What is seen beside a block: with a made-up GPU, with one that fails, and what is said where nothing can be seen."""

from __future__ import annotations

import sys
import threading
import types

import pytest

from specbench.harness.run import machine_state
from specbench.harness.run import machine_watch as module
from specbench.harness.run.machine_watch import Watch, Watcher, find_probe
from specbench.harness.store.block_records import BlockRecord, MachineSeen


class Gpu:
    """`throttled_at`: the samples that see `throttling`, all without it; `sampled` is set at the third sample."""

    def __init__(
        self,
        throttling=(),
        num_processes=1,
        error: Exception | None = None,
        throttled_at=None,
        limits_w=(700.0, 700.0),
        is_capped=False,
    ):
        self._reasons, self._num, self._error, self._at = frozenset(throttling), num_processes, error, throttled_at
        self._limits_w, self._is_capped = list(limits_w), is_capped
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

    def is_power_capped(self) -> bool:
        return self._is_capped

    def power_limit_w(self) -> float | None:
        return self._limits_w.pop(0)


def watched(probe, **more) -> Watch:
    with Watcher("cuda", probe, **more).watch() as watch:
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
    assert watched(Gpu(num_processes=3), most_processes=None).reasons == (), "an engine's own may be among them"


def test_a_power_limit_that_is_reached_is_said_and_one_that_changes_rejects():
    capped = watched(Gpu(is_capped=True))
    seen = capped.record("A", 0, 0).machine
    assert capped.reasons == () and seen.is_power_capped and seen.power_limits_w == (700, 700)
    assert watched(Gpu(limits_w=(700.0, 350.0))).reasons == ("power limit changed from 700 W to 350 W",)
    assert watched(Gpu(limits_w=(None, None))).record("A", 0, 0).machine.power_limits_w is None


def on_cpu(monkeypatch, tmp_path, before: tuple, after: tuple, seconds: float = 10.0) -> BlockRecord:
    """Around a block of so long, each side as (load, ticks, stolen ticks, stalled us), on 2 cores."""
    now_s = iter((100.0, 100.0 + seconds))
    monkeypatch.setattr(machine_state, "PROC", tmp_path)
    monkeypatch.setattr(machine_state, "time", types.SimpleNamespace(monotonic=lambda: next(now_s)))
    monkeypatch.setattr(machine_state.os, "cpu_count", lambda: 2)
    (tmp_path / "pressure").mkdir(exist_ok=True)

    def tell(load: float, ticks: int, stolen: int, stalled_us: int) -> None:
        (tmp_path / "loadavg").write_text(f"{load} 1.00 1.00 3/200 99\n")
        (tmp_path / "stat").write_text(f"cpu  {ticks - stolen} 0 0 0 0 0 0 {stolen} 7 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n")
        text = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={stalled_us}\nfull avg10=0.00 avg60=0.00 total=9\n"
        (tmp_path / "pressure" / "memory").write_text(text)

    tell(*before)
    with Watcher("cpu", None).watch() as watch:
        tell(*after)
    return watch.record("A", 0, 0)


CASES = {
    "quiet": ((0.8, 0, 0, 0), (1.9, 2000, 10, 1000), (), ()),
    "load": ((5.0, 0, 0, 0), (4.2, 2000, 0, 0), ("load 4.2 on 2 cores",), ("load 4.2 on 2 cores",)),
    "its own threads": ((2.1, 0, 0, 0), (2.4, 2000, 0, 0), (), ()),
    "a load that fell": ((5.0, 0, 0, 0), (1.9, 2000, 0, 0), (), ("load 5.0 on 2 cores",)),
    "steal": ((1.0, 0, 0, 0), (1.0, 2000, 240, 0), ("other guests used 12% of the CPU time (steal)",), None),
    "memory": ((1.0, 0, 0, 0), (1.0, 2000, 0, 3_000_000), ("waited for memory for 30% of the time",), None),
}


@pytest.mark.parametrize("name", CASES)
def test_what_rejects_a_block_and_what_marks_a_row(monkeypatch, tmp_path, name):
    before, after, reasons, marks = CASES[name]
    record = on_cpu(monkeypatch, tmp_path, before, after)
    assert record.reasons == reasons and record.disturbances == (reasons if marks is None else marks)
    assert record.load_average == (before[0], after[0])


@pytest.mark.parametrize(
    ("device", "load", "said"), [("cpu", 5.0, ("load 5.0 on 2 cores",)), ("cpu", 2.4, ()), ("cuda", 500.0, ())]
)
def test_a_busy_machine_is_told_before_the_first_block(monkeypatch, tmp_path, device, load, said):
    (tmp_path / "loadavg").write_text(f"{load} 1 1 1/1 1\n")
    monkeypatch.setattr(machine_state, "PROC", tmp_path)
    monkeypatch.setattr(machine_state.os, "cpu_count", lambda: 2)
    assert Watcher(device, None).busy_now() == said


def test_a_short_block_tells_no_shares(monkeypatch, tmp_path):
    """One tick of two is no steal of 50 %."""
    record = on_cpu(monkeypatch, tmp_path, (1.0, 0, 0, 0), (1.0, 2, 1, 9_000), seconds=0.01)
    assert record.machine == MachineSeen(cores=2) and record.reasons == ()


def test_a_system_that_tells_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(machine_state, "PROC", tmp_path / "none")
    monkeypatch.delattr(machine_state.os, "getloadavg")
    with Watcher("cpu", None).watch() as watch:
        pass
    record = watch.record("A", 0, 0)
    assert record.load_average == (None, None) and record.reasons == () == record.disturbances


def test_the_load_of_the_host_is_not_the_gpu_s(monkeypatch, tmp_path):
    (tmp_path / "loadavg").write_text("500.0 1 1 1/1 1\n")
    monkeypatch.setattr(machine_state, "PROC", tmp_path)
    assert watched(Gpu()).reasons == () == watched(Gpu()).record("A", 0, 0).disturbances


def test_a_passing_throttle_is_seen(monkeypatch):
    monkeypatch.setattr(module, "SAMPLE_INTERVAL_S", 0.001)
    gpu = Gpu({"hardware thermal slowdown"}, throttled_at=2)
    with Watcher("cuda", gpu).watch() as watch:
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
