"""A machine's limits: measured figures are plausible, stored ones come back as they were or are refused."""

from __future__ import annotations

import time
from dataclasses import asdict, replace

import pytest
import torch
from toy.clock import Clock

from specbench.harness.roofline import probe
from specbench.harness.roofline.probe import measure_machine
from specbench.harness.store.codec import from_document, to_document
from specbench.harness.store.roofline_record import GIVEN, MEASURED, Machine

GIVEN_MACHINE = Machine(
    device="any",
    dtype="bfloat16",
    read_bytes_per_s=4.3e12,
    matmul_flops_per_s=780e12,
    attention_flops_per_s=600e12,
    kernel_launch_s=1.05e-6,
)


def stored(machine: Machine) -> Machine:
    return from_document(Machine, to_document(machine), "machine")


def test_figures_are_work_by_time(monkeypatch):
    """A clock of which every call takes a second; one more kernel then costs nothing."""
    monkeypatch.setattr(probe, "time", Clock(tick_ns=10**9, noise=0))
    monkeypatch.setattr(probe, "_READ_BYTES", {"cpu": 1 << 20})
    machine = measure_machine("cpu", torch.float32)
    assert machine.how == MEASURED and machine.dtype == "float32" and "CPU" in machine.device
    assert machine.read_bytes_per_s == pytest.approx(1 << 20)
    assert machine.matmul_flops_per_s == pytest.approx(2 * 1024**3)
    assert machine.attention_flops_per_s == pytest.approx(4 * 16 * 128 * 512**2)
    assert machine.kernel_launch_s == pytest.approx(0, abs=1e-9)


@pytest.mark.timed
def test_measured_on_a_cpu():
    start = time.perf_counter()
    machine = measure_machine("cpu", torch.float32)
    assert time.perf_counter() - start < 60
    assert 1e8 < machine.read_bytes_per_s < 2e12
    assert 1e8 < machine.matmul_flops_per_s < 1e14
    assert 1e7 < machine.attention_flops_per_s < 1e14
    assert 0 <= machine.kernel_launch_s < 1e-3
    assert stored(machine) == machine


@pytest.mark.gpu
def test_measured_on_a_gpu():
    """Against the data sheet's bandwidth, from the clock and width of the memory: nothing reads faster."""
    bound = _memory_bytes_per_s()
    machine = measure_machine("cuda", torch.bfloat16)
    assert 0.3 * bound < machine.read_bytes_per_s < 1.05 * bound
    assert machine.matmul_flops_per_s > 50 * machine.read_bytes_per_s
    assert 0.1 < machine.attention_flops_per_s / machine.matmul_flops_per_s < 1.5
    assert 1e-7 < machine.kernel_launch_s < 1e-5
    again = measure_machine("cuda", torch.bfloat16)
    assert again.read_bytes_per_s == pytest.approx(machine.read_bytes_per_s, rel=0.1)


def _memory_bytes_per_s() -> float:
    properties = torch.cuda.get_device_properties(0)
    clock_hz, bus_bits = properties.memory_clock_rate * 1e3, properties.memory_bus_width
    return 2 * clock_hz * bus_bits / 8


def test_a_given_machine_says_so():
    assert GIVEN_MACHINE.how == GIVEN
    assert GIVEN_MACHINE.describe() == (
        "any, bfloat16, given: reads 4300 GB/s, matmul 780 TFLOP/s, attention 600 TFLOP/s, 1.05 us per kernel"
    )
    assert stored(GIVEN_MACHINE) == GIVEN_MACHINE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("read_bytes_per_s", 0),
        ("matmul_flops_per_s", float("inf")),
        ("attention_flops_per_s", "fast"),
        ("kernel_launch_s", -1e-9),
        ("device", ""),
        ("dtype", None),
        ("how", "guessed"),
    ],
)
def test_a_figure_that_no_machine_has_is_refused(name, value):
    with pytest.raises(ValueError, match=f"machine.{name}: .*allowed"):
        replace(GIVEN_MACHINE, **{name: value})


def test_another_device_is_refused():
    with pytest.raises(ValueError, match="device: 'meta' is not known; allowed: cuda, cpu"):
        measure_machine("meta", torch.float32)


def test_a_record_that_lacks_a_figure_is_refused():
    raw = asdict(GIVEN_MACHINE)
    for wrong in ({k: v for k, v in raw.items() if k != "dtype"}, None, [raw]):
        with pytest.raises(ValueError, match="machine: "):
            from_document(Machine, wrong, "machine")
