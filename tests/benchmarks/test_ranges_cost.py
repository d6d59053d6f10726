"""The variants of benchmarks/ranges_cost.py: rounds run in each, with and without rows in the log."""

from __future__ import annotations

import sys

import pytest
from benchmark_pages import BENCHMARKS
from toy.engines import drive, generate, make_engine, named_strategy, request
from toy.plans import CPU
from toy.prompts import text_prompt

sys.path.insert(0, str(BENCHMARKS))

from ranges_cost import VARIANTS, variant  # noqa: E402


@pytest.mark.parametrize("name", VARIANTS)
def test_rounds_run_with_and_without_rows_in_the_log(name):
    ranges, has_log = VARIANTS[name]
    engine = make_engine(CPU, named_strategy("ngram", k=2))
    with variant(engine, ranges, has_log):
        done = generate(engine, [request(0, text_prompt(0, 9), max_tokens=6)])
    assert [len(each.output_ids) for each in done.values()] == [6]
    assert len(engine.log.rows) > 1 and all((row is not None) == has_log for row in engine.log.rows)
    assert not drive(engine)
