"""What is said while an engine starts: when, for how long it has been, and how its log ends."""

from __future__ import annotations

import pytest
from toy.clock import Clock

from specbench.harness.engines.process import waiting
from specbench.harness.engines.process.waiting import Waiting


@pytest.fixture
def still(monkeypatch) -> Clock:
    """The clock of what waits; it moves in the test alone."""
    made = Clock(tick_ns=0)
    monkeypatch.setattr(waiting, "time", made)
    return made


def test_a_line_every_ten_seconds_with_the_end_of_the_log(still, tmp_path):
    said: list[str] = []
    patient = Waiting(said.append, "eagle: waiting for vLLM", tmp_path / "log")
    for seconds, added in [(9, ""), (1, ""), (9, ""), (1, "loading weights\n"), (25, "ready soon\n"), (0, "")]:
        still.sleep(seconds)
        with (tmp_path / "log").open("a") as log:
            log.write(added)
        patient.look("nothing in its log")
    assert said == [
        "eagle: waiting for vLLM, 10 s: nothing in its log",
        "eagle: waiting for vLLM, 20 s: loading weights",
        "eagle: waiting for vLLM, 45 s: ready soon",
    ]
    assert patient.elapsed_s == pytest.approx(45)
