"""What `train-head` says on stderr: how far each stage is, and how long it takes at the speed so far."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from specbench.harness.cli import progress as progress_module
from specbench.harness.cli.train_progress import TrainProgress
from specbench.harness.training.generate import GenerateStats
from specbench.harness.training.trainer import LogRow


@pytest.fixture
def now(monkeypatch):
    """The clock, in seconds, to be moved by hand."""
    seconds = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: seconds[0])
    return seconds


def lines(watch, now, every_s):
    """What is said of reports that come at this pace."""
    file = io.StringIO()
    with TrainProgress(False) as progress:
        progress._console = Console(file=file, width=200)
        progress._bars = None
        for report in watch:
            report(progress)
            now[0] += every_s
    return file.getvalue().splitlines()


def trained(step):
    row = LogRow(
        step=step, num_steps=500, seconds=1.0, num_positions=1, lr=1e-3, loss=1.0, grad_norm=1.0, accuracy=(0.5,)
    )
    return lambda progress: progress.trained(row)


def test_a_resumed_training_is_judged_by_its_own_steps(now):
    said = lines([trained(step) for step in (300, 350, 400, 450, 500)], now, every_s=20.0)
    left = [line.partition("positions/s")[2] for line in said]
    assert left == ["", ", about 60 s left", ", about 40 s left", ", about 20 s left", ""]
    assert said[1].startswith("specbench: training: 350 of 500; loss 1.000")


def test_responses(now):
    reports = [
        lambda progress, n=n: progress.generated(GenerateStats(num_samples=n, seconds=1.0), 100) for n in (0, 25, 50)
    ]
    said = lines(reports, now, every_s=100.0)
    assert [
        line.endswith(end) for line, end in zip(said, ("loop", "about 5 min left", "about 3 min left"), strict=True)
    ]
    assert all(line.startswith("specbench: responses: ") for line in said)
