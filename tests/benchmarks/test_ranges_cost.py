"""The variants of benchmarks/ranges_cost.py: rounds run in each, with and without rows in the log."""

from __future__ import annotations

import sys
import time

import pytest
from benchmark_pages import BENCHMARKS
from toy.engines import drive, generate, make_engine, named_strategy, request
from toy.plans import CPU
from toy.prompts import text_prompt

sys.path.insert(0, str(BENCHMARKS))

import decode_timer  # noqa: E402
from ranges_cost import VARIANTS, tps_of, variant  # noqa: E402


@pytest.mark.parametrize("name", VARIANTS)
def test_rounds_run_with_and_without_rows_in_the_log(name):
    ranges, has_log = VARIANTS[name]
    engine = make_engine(CPU, named_strategy("ngram", k=2))
    with variant(engine, ranges, has_log):
        done = generate(engine, [request(0, text_prompt(0, 9), max_tokens=6)])
    assert [len(each.output_ids) for each in done.values()] == [6]
    assert len(engine.log.rows) > 1 and all((row is not None) == has_log for row in engine.log.rows)
    assert not drive(engine)


def test_each_variant_is_timed_in_each_repeat(monkeypatch):
    monkeypatch.setattr(decode_timer, "MIN_DECODE_S", 0.001)
    engine = make_engine(CPU, named_strategy("ngram", k=2))

    def batch(num_tokens: int) -> float:
        started = time.perf_counter()
        generate(engine, [request(0, text_prompt(0, 9), max_tokens=num_tokens)])
        return time.perf_counter() - started

    found = tps_of(engine, decode_timer.DecodeTimer(batch, 1, 24), 2)
    assert list(found) == list(VARIANTS) and all(len(tps) == 2 and min(tps) > 0 for tps in found.values())
