"""Our own engine behind the interface: rows as they end, and what is left of a block that does not end."""

from __future__ import annotations

import contextlib
import gc
import time
from dataclasses import replace

import pytest
from toy.engines import assert_idle, deployed, make_engine, named_strategy
from toy.plans import CPU
from toy.prompts import text_prompt

from specbench.harness.engines.load import Load
from specbench.workloads.base import Prompt

NUM_REQUESTS = 5


class Sink:
    """Keeps rows; `stop_after` requests it wants no more, or raises."""

    def __init__(self, stop_after: int = 100, error: BaseException | None = None):
        self.requests, self.steps, self.phases, self.order = [], [], [], []
        self._stop_after, self._error = stop_after, error

    @property
    def cancelled(self) -> bool:
        return len(self.requests) >= self._stop_after

    def request(self, row) -> None:
        self.requests.append(row)
        self.order.append("request")
        if self.cancelled and self._error is not None:
            raise self._error

    def add_steps(self, rows) -> None:
        self.steps += rows
        self.order.append("steps")

    def add_phases(self, rows) -> None:
        self.phases += rows

    def add_counters(self, rows) -> None: ...


@pytest.fixture
def load() -> Load:
    prompts = [
        Prompt(id=f"p{i}", text="", token_ids=tuple(text_prompt(i, 8 + i)), max_tokens=3 + i)
        for i in range(NUM_REQUESTS)
    ]
    return Load(
        prompts=prompts,
        arrival_s=[0.0] * NUM_REQUESTS,
        max_concurrency=2,
        temperature=0.0,
        top_k=0,
        top_p=1.0,
        stop_token_ids=(),
        seed=3,
    )


@pytest.fixture
def deployment():
    return deployed(make_engine(CPU, named_strategy("ngram", k=2)))


def test_requests_are_handed_over_as_they_end_and_steps_behind_the_last(deployment, load):
    sink = Sink()
    deployment.measure(load, sink)
    assert sink.order == ["request"] * NUM_REQUESTS + ["steps"]
    assert {row.prompt_id: row.num_output_tokens for row in sink.requests} == {f"p{i}": 3 + i for i in range(5)}
    for row in sink.requests:
        assert row.num_output_tokens == len(row.output_token_ids)
        assert row.num_output_tokens == sum(s.num_emitted for s in sink.steps if s.request_id == row.request_id)
    assert {row.source for row in sink.phases} == {"host_clock"}
    assert_idle(deployment.engine)


def test_a_request_that_arrives_while_a_step_runs_waits_for_it_in_the_engine(load):
    """As one that a client sends to a server: the rest of that step is part of its TTFT."""
    deployment, sink = deployed(make_engine(CPU)), Sink()
    step = deployment.engine.step
    deployment.engine.step = lambda: (time.sleep(0.02), step())[1]
    deployment.measure(replace(load, arrival_s=[0.0, 0.011, 0.013, 0.014, 0.015], max_concurrency=3), sink)
    rows = {row.request_id: row for row in sink.requests}
    first_ns = rows[0].t_submit_ns
    assert [rows[n].t_submit_ns - first_ns for n in (1, 2)] == [11_000_000, 13_000_000]
    # The others wait for a place before they are sent.
    ends_ns = sorted(row.t_last_ns for row in rows.values())
    assert ends_ns[0] <= rows[3].t_submit_ns < ends_ns[1] <= rows[4].t_submit_ns < ends_ns[2]


def test_a_sink_that_wants_no_more_is_heard(deployment, load):
    sink = Sink(stop_after=2)
    deployment.measure(load, sink)
    assert len(sink.requests) == 2 and {s.request_id for s in sink.steps} >= {r.request_id for r in sink.requests}
    assert_idle(deployment.engine)
    again = Sink()
    deployment.measure(load, again)
    assert len(again.requests) == NUM_REQUESTS, "as good as before"


@pytest.mark.parametrize("error", [None, KeyboardInterrupt()])
def test_nothing_is_collected_between_two_steps(deployment, load, error):
    """A full collection would be one step of a quarter of a second."""
    sink, on = Sink(stop_after=2, error=error), []
    step = deployment.engine.step
    deployment.engine.step = lambda: (on.append(gc.isenabled()), step())[1]
    with contextlib.suppress(KeyboardInterrupt):
        deployment.measure(load, sink)
    assert on and not any(on) and gc.isenabled()


def test_steps_of_a_block_that_is_cut_short_are_handed_over(deployment, load):
    sink = Sink(stop_after=2, error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        deployment.measure(load, sink)
    assert sum(s.num_emitted for s in sink.steps if s.request_id == 0) == 3
    assert {row.source for row in sink.phases} == {"host_clock"}


def test_what_it_says_of_itself(deployment):
    facts = deployment.described
    assert (facts.graph_mode, facts.backend, facts.hardware) == ("none", "torch", "cpu") and facts.version
    assert facts.config == {}, "its steps take all prompt tokens that fit"


def test_it_says_how_many_prompt_tokens_its_steps_take_beside_decodes(deployment, monkeypatch):
    config = deployment.engine.config
    monkeypatch.setattr(
        deployment.engine, "config", replace(config, mixed_chunk_size=config.max_num_batched_tokens - 1)
    )
    assert deployment.described.config == {"mixed_chunk_size": str(config.max_num_batched_tokens - 1)}


def test_scores_are_of_the_last_tokens(deployment):
    ids = text_prompt(1, 12)
    two, one = deployment.score(ids, 2), deployment.score(ids, 1)
    assert len(two.regrets) == 2 and two.regrets[1] == pytest.approx(one.regrets[0], abs=1e-4) and min(two.regrets) >= 0
    assert two.is_greedy == (max(two.regrets) == 0)
    assert two.log_prob == pytest.approx(one.log_prob + deployment.score(ids[:-1], 1).log_prob, abs=1e-4)
