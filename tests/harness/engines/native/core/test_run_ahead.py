"""Conformance 56: a host that runs ahead changes no output, whatever it reuses while launches are still queued.

Random traffic (toy/random_traffic.py) on a device that runs as late as it may (toy/lazy_device.py): each request must
say what it says alone, read at once.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import pytest
from toy.compare import assert_same_output
from toy.engines import assert_idle, decode_rows, generate, make_engine
from toy.few_words import FewWords
from toy.lazy_device import lazy_device
from toy.plans import CPU
from toy.random_traffic import MAX_MODEL_LEN, STRATEGIES, Seen, drive_at_random, random_engine, random_requests

from specbench.harness.engines.native.core import graphs
from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.layouts import MixedEntry
from specbench.harness.engines.native.core.request import FinishReason, Request, SamplingParams
from specbench.harness.engines.native.core.slot_memory import SlotMemory
from specbench.harness.engines.native.core.upload import send_into

LAGS = (1, 2, 4)
NUM_REQUESTS = 24
Plant: TypeAlias = Callable[[Engine, pytest.MonkeyPatch], None]


class Alone:
    """What requests say with nothing beside them, without drafts."""

    def __init__(self, target) -> None:
        self._engine = make_engine(CPU, target=target, max_num_seqs=1, page_size=64, max_model_len=MAX_MODEL_LEN)
        self._said: dict[tuple[tuple[int, ...], SamplingParams], Request] = {}

    def says(self, r: Request) -> Request:
        key = (r.prompt_ids, r.sampling)
        if key not in self._said:
            self._said[key] = generate(self._engine, [Request(0, *key)])[0]
        return self._said[key]


@pytest.fixture(scope="module")
def alone(few_words: FewWords) -> Alone:
    return Alone(few_words.target("cpu"))


def _assert_bounds(batch: StepBatch) -> None:
    """No pass may have more keys than its launch was made for, though the host knew less when it launched."""
    for forward in batch._forwards.values():
        for part in forward.parts:
            assert part.meta.kv_len_B.max() <= part.meta.max_kv, "more keys than the launch was made for"


def _assert_as_alone(engine: Engine, done: Request, want: Request, where: str) -> None:
    tokens = want.output_ids
    if done.finish_reason is FinishReason.ABORT:
        tokens = tokens[: len(done.output_ids)]
    assert_same_output(engine.target, done.prompt_ids, done.sampling, done.output_ids, tokens, where)
    if done.output_ids != tokens:
        return  # after a near-tie, another text
    assert done.finish_reason in (want.finish_reason, FinishReason.ABORT), where
    assert len(done.logprobs) == (0 if done.sampling.logprobs is None else len(tokens)), where
    for mine, other in zip(done.logprobs, want.logprobs, strict=False):
        assert math.isclose(mine.logprob, other.logprob, abs_tol=2e-3), where


def _run(name: str, lag: int, few_words: FewWords, alone: Alone, plant: Plant | None = None) -> Seen:
    """Random traffic, always the same for a strategy and a lag; each request is compared."""
    rng = random.Random(f"{name} {lag}")
    requests, engine = random_requests(rng, NUM_REQUESTS), random_engine(rng, name, lag, few_words)
    with lazy_device(engine, _assert_bounds) as device, pytest.MonkeyPatch.context() as patch:
        if plant is not None:
            plant(engine, patch)
        seen = drive_at_random(rng, engine, device, requests[::-1])
    assert seen.finished.keys() == {r.id for r in requests}, "requests lost"
    assert_idle(engine)
    for number, done in seen.finished.items():
        where = f"lag {lag}, request {number}"
        assert done.finish_reason is not FinishReason.ABORT or number in seen.aborted, where
        _assert_as_alone(engine, done, alone.says(done), where)
        assert done.num_inflight == 0, f"{where}: a step that never ends"
        emitted = sum(row.num_emitted for row in engine.log.rows if row.request_id == number)
        assert emitted == len(done.output_ids), f"{where}: what is logged is not what was said"
    assert all(row.num_emitted for row in decode_rows(engine)), "a frozen row was logged as work"
    return seen


@pytest.mark.parametrize("name", STRATEGIES)
def test_c56_on_a_device_that_runs_late_each_request_says_what_it_says_alone(few_words, alone, name):
    seen = {lag: _run(name, lag, few_words, alone) for lag in LAGS}
    assert all(s.most_in_flight <= lag for lag, s in seen.items()) and seen[4].most_in_flight > 2
    assert any(s.num_preemptions for s in seen.values()) and all(s.aborted for s in seen.values())


def _slots_written_at_once(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    """An admitted request revives its slot under the rounds of the last one, which are still queued."""
    memory = engine.state._memory
    patch.setattr(memory, "write", partial(SlotMemory.write, memory))


def _rounds_assigned_at_once(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    """A queued round runs with the requests of the next one."""
    patch.setattr(graphs, "send_into", send_into)


def _mixed_steps_for_the_keys_before_them(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    """Their passes are launched for fewer keys than they have; on a CPU, no output shows it."""
    of = MixedEntry.of
    patch.setattr(MixedEntry, "of", lambda row, most: replace(of(row, most), kv_len=row.request.num_computed))


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (_slots_written_at_once, "expected"),
        (_rounds_assigned_at_once, "expected"),
        (_mixed_steps_for_the_keys_before_them, "more keys than the launch was made for"),
    ],
)
def test_a_planted_fault_is_seen(few_words, alone, plant, message):
    """By one of a few runs: not all have two rounds of the same size in flight, of different requests."""
    with pytest.raises(AssertionError, match=message):
        for lag, name in itertools.product((4, 2), ("eagle", "no-spec", "ngram")):
            _run(name, lag, few_words, alone, plant)
