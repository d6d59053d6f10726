"""500 streams of 20 tokens a second from a server on the same machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from toy.openai_server import OpenAIServer

from specbench.harness.engines.openai.delay import LIMIT_NS
from specbench.harness.metrics.counters import counter_marks
from specbench.harness.stats.spread import spread

from .conftest import Kept, deployment_of, load_of

NUM_STREAMS, NUM_TOKENS, GAP_S = 500, 100, 0.05
TESTS = Path(__file__).resolve().parents[3]


@pytest.fixture
def alone() -> Iterator[OpenAIServer]:
    """In a process of its own: in ours it would hold up the client."""
    program = [sys.executable, str(TESTS / "toy" / "openai_server.py"), "vllm", str(GAP_S)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / ".ns")])}
    with subprocess.Popen(
        program, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        yield OpenAIServer(url=process.stdout.readline().strip())
        process.stdin.close()


@pytest.mark.timed
def test_none_is_lost_and_the_client_is_in_time_or_says_so(alone):
    sink = Kept()
    load = load_of(NUM_STREAMS, max_tokens=NUM_TOKENS, concurrency=NUM_STREAMS)
    deployment_of(alone, concurrency=NUM_STREAMS).measure(load, sink)
    assert [row.error for row in sink.requests] == [""] * NUM_STREAMS
    assert all(row.output_token_ids == list(range(NUM_TOKENS)) for row in sink.requests), "none lost, order kept"
    times = {n: [row.t_host_ns for row in sink.steps if row.request_id == n] for n in (0, NUM_STREAMS - 1)}
    assert all(len(each) == NUM_TOKENS and each == sorted(each) for each in times.values())
    gap_ms = float(np.median(np.diff(times[0]))) / 1e6
    p99, limit = sink.counters["client.delay_p99_ns"], sink.counters["client.delay_limit_ns"]
    print(f"p50 {sink.counters['client.delay_p50_ns'] / 1e6:.2f} ms, p99 {p99 / 1e6:.2f} ms, gap {gap_ms:.1f} ms")
    assert gap_ms > 45 and limit <= LIMIT_NS
    figures = {f"counters.{name}": spread([value]) for name, value in sink.counters.items()}
    assert p99 < LIMIT_NS or any("limited by the client" in mark for mark in counter_marks(figures))
