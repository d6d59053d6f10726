"""What came of vLLM's steps, from a scheduler of the same shape: rows as ours, whatever order outcomes come in."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from specbench.harness.engines.child import wire
from specbench.harness.engines.vllm import engine


@pytest.fixture
def steps(monkeypatch):
    """The module as the child imports it."""
    monkeypatch.setitem(sys.modules, "wire", wire)
    monkeypatch.syspath_prepend(str(Path(engine.__file__).parent))
    import steps

    yield steps
    del sys.modules["steps"]


@dataclass
class Request:
    num_prompt_tokens: int
    num_tokens: int
    ended: bool = False

    def is_finished(self) -> bool:
        return self.ended


@dataclass
class Scheduler:
    """Does as it is told; `told` is what an outcome leaves of the sampled tokens."""

    requests: dict[str, Request]
    planned: list = field(default_factory=list)
    told: list = field(default_factory=list)

    def schedule(self):
        return self.planned.pop(0)

    def update_from_output(self, planned, outcome):
        kept = self.told.pop(0)
        return {0: SimpleNamespace(outputs=[SimpleNamespace(request_id=k, new_token_ids=v) for k, v in kept.items()])}


def plan(rows: dict[str, int], new: dict[str, int], cached: dict[str, int], drafts: dict[str, int]):
    return SimpleNamespace(
        num_scheduled_tokens=rows,
        scheduled_new_reqs=[SimpleNamespace(req_id=k, num_computed_tokens=v) for k, v in new.items()],
        scheduled_cached_reqs=SimpleNamespace(req_ids=list(cached), num_computed_tokens=list(cached.values())),
        scheduled_spec_decode_tokens={k: [-1] * n for k, n in drafts.items()},
    )


def outcome(sampled: dict[str, int], **more):
    names = list(sampled)
    tokens = [[9] * num for num in sampled.values()]
    return SimpleNamespace(sampled_token_ids=tokens, req_id_to_index={n: i for i, n in enumerate(names)}, **more)


def watched(steps, scheduler, graph="none"):
    clock = iter(range(100, 10_000, 100))
    watch = steps.StepWatch(scheduler, graph, lambda: next(clock))
    watch.name("a-x", 7)
    watch.name("b-y", 8)
    return watch


def test_a_prompt_then_a_round_with_drafts(steps):
    scheduler = Scheduler({"a-x": Request(6, 6)})
    scheduler.planned = [plan({"a-x": 6}, {"a-x": 0}, {}, {}), plan({"a-x": 5}, {}, {"a-x": 6}, {"a-x": 4})]
    scheduler.told = [{"a-x": [1]}, {"a-x": [2, 3, 4]}]
    watch = watched(steps, scheduler)
    scheduler.update_from_output(scheduler.schedule(), outcome({"a-x": 1}))
    scheduler.requests["a-x"].num_tokens = 7
    scheduler.update_from_output(scheduler.schedule(), outcome({"a-x": 3}))
    first, second = watch.take()
    assert first[:4] == (0, 100, 200, 1) and second[:4] == (1, 300, 400, 1)
    assert first.rows == [wire.StepRow(7, 1, 0, 0, True, 6)] and first.num_padded_rows == 6
    assert second.rows == [wire.StepRow(7, 3, 4, 2, False, 5)] and second.graph == "none"
    assert watch.times(7) == (200, 400) and watch.times(8) == (0, 0) and watch.take() == []


def test_a_chunk_of_a_prompt_says_nothing_and_what_is_computed_again_is_no_round(steps):
    scheduler = Scheduler({"a-x": Request(10, 10), "b-y": Request(4, 9)})
    scheduler.planned = [plan({"a-x": 5, "b-y": 8}, {"a-x": 0}, {"b-y": 0}, {})]
    scheduler.told = [{}]
    watch = watched(steps, scheduler)
    scheduler.update_from_output(scheduler.schedule(), outcome({"a-x": 0, "b-y": 0}))
    (step,) = watch.take()
    assert step.rows == [wire.StepRow(7, 0, 0, 0, True, 5), wire.StepRow(8, 0, 0, 0, True, 8)]


def test_tokens_past_the_limit_count_as_accepted_and_not_as_emitted(steps):
    scheduler = Scheduler({"a-x": Request(4, 6)}, [plan({"a-x": 5}, {}, {"a-x": 5}, {"a-x": 4})], [{"a-x": [1]}])
    watch = watched(steps, scheduler)
    scheduler.update_from_output(scheduler.schedule(), outcome({"a-x": 5}))
    assert watch.take()[0].rows == [wire.StepRow(7, 1, 4, 4, False, 5)]


def test_a_step_launched_before_the_one_in_front_was_read(steps):
    """Asynchronous scheduling: each outcome belongs to its own schedule, and a request that has ended has none."""
    scheduler = Scheduler({"a-x": Request(4, 5), "b-y": Request(4, 5)})
    both = {"a-x": 3, "b-y": 3}
    scheduler.planned = [plan(both, {}, {"a-x": 4, "b-y": 4}, {"a-x": 2, "b-y": 2}) for _ in range(2)]
    scheduler.told = [{"a-x": [1, 2], "b-y": [3]}, {"b-y": [4, 5, 6]}]
    watch = watched(steps, scheduler)
    first, second = scheduler.schedule(), scheduler.schedule()
    scheduler.update_from_output(first, outcome({"a-x": 2, "b-y": 1}))
    scheduler.requests["a-x"].ended = True
    scheduler.update_from_output(second, outcome({"a-x": 3, "b-y": 3}))
    one, two = watch.take()
    assert (one.number, one.t_start_ns, one.t_host_ns) == (0, 100, 300)
    assert (two.number, two.t_start_ns, two.t_host_ns) == (1, 200, 400)
    assert [row.request_id for row in one.rows] == [7, 8]
    assert two.rows == [wire.StepRow(8, 3, 2, 2, False, 3)] and two.batch_size == 2


def test_how_a_step_ran_where_it_can_vary(steps):
    scheduler = Scheduler({"a-x": Request(4, 5)})
    scheduler.planned = [plan({"a-x": 1}, {}, {"a-x": 4}, {}) for _ in range(2)]
    scheduler.told = [{"a-x": [1]}] * 2
    watch = watched(steps, scheduler, graph=None)
    told = SimpleNamespace(runtime_mode="CUDAGraphMode.FULL", num_padded_tokens=8)
    scheduler.update_from_output(scheduler.schedule(), outcome({"a-x": 1}, cudagraph_stats=told))
    scheduler.update_from_output(scheduler.schedule(), outcome({"a-x": 1}, cudagraph_stats=None))
    full, unknown = watch.take()
    assert (full.graph, full.num_padded_rows) == ("full", 8)
    assert (unknown.graph, unknown.num_padded_rows) == (None, None)


def test_requests_that_are_not_measured_leave_no_rows(steps):
    scheduler = Scheduler({"score": Request(4, 4)}, [plan({"score": 4}, {"score": 0}, {}, {})], [{"score": [1]}])
    watch = watched(steps, scheduler)
    scheduler.update_from_output(scheduler.schedule(), outcome({"score": 1}))
    assert watch.take() == []
