"""Conformance 70: no measured round is faster than the machine's limits allow."""

from __future__ import annotations

import pytest
import torch

from specbench.harness.roofline.of_run import ideal_arms_of
from specbench.harness.roofline.probe import measure_machine


@pytest.mark.timed
def test_c70_measured_rounds_are_above_the_ideal(cli, toy, only_run):
    arms = ("no-spec", "ngram:k=2,min_n=1", "eagle:k=2,head=random,acceptance=synthetic:2.0")
    words = [word for arm in arms for word in ("-s", arm)]
    assert cli(*toy, *words, "--max-concurrency", 2).exit_code == 0
    run = only_run()
    found = ideal_arms_of(run.record, run.frames(), measure_machine("cpu", torch.float32))
    assert [arm.label for arm in found] == list(arms)
    for arm in found:
        assert arm.measured is not None and arm.ideal_round_ms is not None, arm.unknown
        assert 0 < arm.ideal_round_ms < arm.measured.duration_ms, arm.label
