"""Uploads that wait for nothing have the values of their time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from specbench.harness.engines.native.core.upload import send, send_into, send_rows_into

NUM_UPLOADS = 30


def uploaded(num: int, cycles: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """The i-th are full of i. The device is busy for so many cycles before it runs the first."""
    device = torch.device("cuda")
    into = [torch.zeros(num, dtype=torch.int64, device=device) for _ in range(NUM_UPLOADS)]
    rows = torch.zeros(NUM_UPLOADS, num, dtype=torch.int32, device=device)
    torch.cuda.synchronize()
    torch.cuda._sleep(cycles)
    sent = []
    for i, each in enumerate(into):
        sent.append(send(torch.full((num,), i), device))
        send_into(each, torch.full((num,), i))
        send_rows_into(rows, torch.tensor([i]), torch.full((1, num), i, dtype=torch.int32))
    return list(zip(sent, into, rows, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("num", [1, 100_000])
def test_uploads_that_a_busy_device_runs_late_have_the_values_of_their_time(num):
    """Were pinned memory used again before its copy has run, the first uploads would have later values."""
    uploaded(num, cycles=0)  # a kernel's first use waits for the device
    found = uploaded(num, cycles=1_000_000_000)
    assert not torch.cuda.current_stream().query(), "none has run yet"
    for i, tensors in enumerate(found):
        assert all((each == i).all() for each in tensors), i


def test_on_a_cpu_nothing_is_copied_to_send_it():
    tensor = torch.arange(3)
    assert send(tensor, torch.device("cpu")) is tensor
    out = torch.zeros(4, 2, dtype=torch.int64)
    send_rows_into(out, torch.tensor([3, 0]), torch.tensor([[1, 2], [3, 4]]))
    assert out.tolist() == [[3, 4], [0, 0], [0, 0], [1, 2]]
