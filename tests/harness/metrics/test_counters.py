"""Counters of a block that void figures or mark a row."""

from __future__ import annotations

import pytest

from specbench.harness.metrics.counters import counter_marks, without_void
from specbench.harness.stats.spread import Spread, spread

LATENCY = {"ttft_ms.mean": 5.0, "ttft_device_ms.mean": None, "tpot_ms.mean": 2.0}


def figures_of(**counters: list[float]) -> dict[str, Spread]:
    """Each counter with its values over the blocks; `__` stands for a dot."""
    return {f"counters.{name.replace('__', '.')}": spread(values) for name, values in counters.items()}


@pytest.mark.parametrize("name", ["engine.prefix_cache_hits", "engine.cached_prompt_tokens"])
def test_a_hit_voids_the_first_token(name):
    assert without_void(LATENCY, {name: 1.0}) == {**LATENCY, "ttft_ms.mean": None}
    assert without_void(LATENCY, {name: 0.0}) == LATENCY == without_void(LATENCY, {})
    (mark,) = counter_marks(figures_of(**{name.replace(".", "__"): [0.0, 32.0]}))
    assert mark == "no TTFT: 32 prompt tokens of a block came from a prefix cache"


def test_a_client_that_is_late_in_one_block_marks_the_row():
    late = figures_of(client__delay_p99_ns=[1e6, 12.34e6], client__delay_limit_ns=[10e6, 10e6])
    (mark,) = counter_marks(late)
    assert mark == "limited by the client: its timestamps are 12.3 ms late (p99), allowed 10.0 ms"
    assert not list(counter_marks(figures_of(client__delay_p99_ns=[1e6], client__delay_limit_ns=[10e6])))
    assert not list(counter_marks(figures_of()))


def test_experts_that_a_pass_reads_are_said():
    (mark,) = counter_marks(
        figures_of(engine__experts_per_decode_pass=[30.0, 31.26, 40.0], engine__num_experts=[128.0] * 3)
    )
    assert mark == "a pass reads 31.3 of 128 experts a layer"
