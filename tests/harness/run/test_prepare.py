"""What a run prepares before its first block."""

from __future__ import annotations

import pytest

from specbench.harness.run.prepare import initial_record, prepare
from specbench.harness.run.progress import NullProgress
from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.conditions import RunConfig

LOAD = dict(dataset_name="random", random_input_len=20, random_output_len=8, max_model_len=64)


@pytest.mark.parametrize(
    ("asked", "temperatures", "num_sent", "slots"),
    [
        (65_536, (), None, 3),
        (65_536, (0.0, 0.7), None, 6),
        (2, (), None, 2),
        (8, (), 64, 8),  # as a certificate's seeds, or prompts that are repeated
    ],
)
def test_an_engine_has_no_more_slots_than_requests_are_sent_at_once(asked, temperatures, num_sent, slots):
    """65,536 slots of the longest requests are memory that no machine has; the record keeps what was asked for."""
    config = RunConfig(
        arms=(ArmConfig(label="no-spec", strategy="no-spec"),),
        num_prompts=3,
        max_concurrency=asked,
        temperature_grid=temperatures,
        load_format="dummy",
        model="toy",
        **LOAD,
    )
    with prepare(config, NullProgress(), num_sent=num_sent) as run:
        (label,) = run.deployments.labels
        assert run.deployments.of(run.arms[0]).batch_size == run.load.max_concurrency == slots
        record = initial_record(run, ())
    assert label == "no-spec" and record.config == config and record.sampling.max_concurrency == asked
