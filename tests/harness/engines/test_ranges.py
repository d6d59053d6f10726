"""Phases are named for profilers from one helper, and cost nothing when nobody profiles."""

from __future__ import annotations

import pytest
from torch.profiler import ProfilerActivity, profile
from toy.engines import generate, make_engine, named_strategy, request
from toy.plans import CPU
from toy.prompts import text_prompt

from specbench.harness.engines.ranges import NullRanges, TraceRanges, ranges_named


def _names(engine) -> set[str]:
    with profile(activities=[ProfilerActivity.CPU]) as traced:
        generate(engine, [request(0, text_prompt(0, 9), max_tokens=6)])
    return {event.key for event in traced.key_averages() if event.key.startswith("specbench:")}


def test_every_phase_of_a_round_is_a_range_in_a_trace():
    engine = make_engine(CPU, named_strategy("eagle", k=3, head="random"))
    engine.ranges = TraceRanges()
    names = {name.removeprefix("specbench:") for name in _names(engine)}
    assert {"advance", "verify", "accept", "draft_first", "draft_next", "prefill"} <= names
    assert any(name.startswith("step ") for name in names)


def test_ranges_are_off_by_default_and_share_one_context():
    engine = make_engine(CPU, named_strategy("no-spec"))
    assert isinstance(engine.ranges, NullRanges)
    assert engine.ranges.range("verify") is engine.ranges.range("accept")
    assert _names(engine) == set()


@pytest.mark.parametrize(("name", "kind"), [("off", NullRanges), ("nvtx", TraceRanges)])
def test_names_of_the_command_line(name, kind):
    assert isinstance(ranges_named(name), kind)
