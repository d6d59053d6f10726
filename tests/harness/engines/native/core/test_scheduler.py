"""Admission, chunks, page reservation and preemption, without any model."""

from __future__ import annotations

import random

import pytest

from specbench.harness.engines.native.core.config import EngineConfig
from specbench.harness.engines.native.core.lookahead import Lookahead
from specbench.harness.engines.native.core.pages import DUMMY_PAGE, PageAllocator
from specbench.harness.engines.native.core.request import FinishReason, Request, SamplingParams
from specbench.harness.engines.native.core.scheduler import Scheduler


def _scheduler(num_pages: int = 100, page_size: int = 4, k: int = 2, **sizes) -> Scheduler:
    defaults = dict(max_num_seqs=3, max_num_batched_tokens=10, max_model_len=64)
    config = EngineConfig(**{**defaults, **sizes})
    return Scheduler(config, PageAllocator(num_pages, page_size), k, Lookahead.of(k, None))


def _request(number: int, num_prompt: int, max_tokens: int = 8) -> Request:
    return Request(number, tuple(range(num_prompt)), SamplingParams(max_tokens=max_tokens))


def _prefilled(rows) -> None:
    """What the engine does after a mixed step: computed counts move on, and a finished prompt has its first token."""
    for row in rows:
        if row.is_prefill:
            row.request.num_computed += row.num_rows
            if not row.request.is_prefilling:
                row.request.output_ids.append(0)


# -- pages -------------------------------------------------------------------------------------------------------------


def test_pages_are_handed_out_lowest_first_and_never_the_dummy():
    allocator = PageAllocator(6, page_size=4)
    assert allocator.num_usable == allocator.num_free == 5
    assert allocator.allocate(2) == [1, 2] and allocator.allocate(3) == [3, 4, 5]
    assert DUMMY_PAGE == 0 and allocator.allocate(1) is None
    allocator.free([4, 2])
    assert allocator.allocate(3) is None and allocator.num_free == 2, "too many must take nothing"
    assert allocator.allocate(2) == [2, 4]
    assert allocator.allocate(0) == []
    assert [allocator.pages_for(n) for n in (0, 1, 4, 5, 8)] == [0, 1, 1, 2, 2]


@pytest.mark.parametrize("pages", [[1, 1], [3], [0]])
def test_pages_are_returned_exactly_once(pages):
    allocator = PageAllocator(4, page_size=1)
    allocator.allocate(2)
    with pytest.raises(AssertionError, match="freed twice or never allocated"):
        allocator.free(pages)


def test_a_cache_needs_a_page_besides_the_dummy():
    with pytest.raises(AssertionError):
        PageAllocator(1, page_size=4)


# -- admission and chunks ----------------------------------------------------------------------------------------------


def test_first_come_first_served_within_the_token_budget():
    s = _scheduler()
    for i, length in enumerate((6, 7, 3, 2)):
        s.add(_request(i, length))
    assert s.wants_mixed_step()
    rows = s.plan_mixed_step()
    assert [(r.request.id, r.num_rows, r.is_prefill) for r in rows] == [(0, 6, True), (1, 4, True)]
    _prefilled(rows)
    rows = s.plan_mixed_step()
    # The decode of request 0 brings K+1 rows, request 1 goes on, request 2 fills what is left.
    assert [(r.request.id, r.num_rows, r.is_prefill) for r in rows] == [(0, 3, False), (1, 3, True), (2, 3, True)]
    assert [r.id for r in s.waiting] == [3], "there are three slots"
    _prefilled(rows)
    assert not s.wants_mixed_step(), "no slot is free: decode"


def test_decodes_wait_for_few_prompt_tokens_and_prompts_alone_for_none():
    s = _scheduler(mixed_chunk_size=4)
    for i, length in enumerate((8, 9, 2)):
        s.add(_request(i, length))
    rows = s.plan_mixed_step()
    assert [(r.request.id, r.num_rows) for r in rows] == [(0, 8), (1, 2)], "nothing decodes yet"
    _prefilled(rows)
    rows = s.plan_mixed_step()
    assert [(r.request.id, r.num_rows) for r in rows] == [(0, 3), (1, 4)], "the step has 10 rows, of prompts 4"
    _prefilled(rows)
    rows = s.plan_mixed_step()
    assert [(r.request.id, r.num_rows) for r in rows] == [(0, 3), (1, 3), (2, 1)], "of several prompts together"


def test_a_step_has_no_more_rows_than_without_a_limit_for_prompts():
    s = _scheduler(mixed_chunk_size=9)
    for i, length in enumerate((9, 9)):
        s.add(_request(i, length))
    _prefilled(s.plan_mixed_step())
    assert [(r.request.id, r.num_rows) for r in s.plan_mixed_step()] == [(0, 3), (1, 7)]


def test_a_large_batch_of_decodes_still_lets_a_prompt_in():
    s = _scheduler(max_num_batched_tokens=2, k=4)
    for i in range(3):
        s.add(_request(i, 2))
        _prefilled(s.plan_mixed_step())
        _prefilled(s.plan_mixed_step())
    assert all(not r.is_prefilling for r in s.running) and len(s.running) == 3


def test_slots_are_reused_and_distinct():
    s = _scheduler()
    for i in range(3):
        s.add(_request(i, 2))
    _prefilled(s.plan_mixed_step())
    slots = [r.slot for r in s.running]
    assert sorted(slots) == [0, 1, 2]
    gone = s.running[1]
    s.remove(gone)
    assert gone.slot is None and gone.pages == []
    s.add(_request(9, 2))
    s.plan_mixed_step()
    assert s.running[-1].id == 9 and s.running[-1].slot == slots[1]


def test_a_request_that_can_never_fit_is_refused_and_one_that_just_fits_is_served():
    s = _scheduler(num_pages=1 + 5, page_size=4, k=2)
    with pytest.raises(ValueError, match="num_pages: request 7 needs 6 pages of 4 tokens, the cache has 5"):
        s.add(_request(7, 11, max_tokens=8))
    s.add(_request(8, 10, max_tokens=8))  # 10 + 8 + K = 20 tokens
    assert s.wants_mixed_step()


# -- pages for rounds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 1, 4])
@pytest.mark.parametrize("inflight", [0, 1, 3])
def test_reserved_tokens_cover_all_that_the_rounds_may_write(k, inflight):
    """n moves by K+1 a round at most; a round verifies up to n+K and then drafts up to n'+K-2."""
    s = _scheduler(k=k, max_model_len=1000)
    r = _request(0, 10, max_tokens=500)
    r.num_prefill = r.num_computed = 10
    r.num_inflight = inflight
    n = 10 + inflight * (k + 1)
    last_written = max(n + k, n + (k + 1) + k - 2) if k else n
    assert s.capacity_tokens(r) >= last_written + 1


def test_reservation_stops_at_the_limit():
    s = _scheduler(k=3, page_size=1, num_pages=500, max_model_len=30)
    r = _request(0, 10, max_tokens=500)
    s.add(r)
    _prefilled(s.plan_mixed_step())
    r.num_inflight = 50
    assert s.reserve([r]) and len(r.pages) == 30 + 3


def test_reserve_takes_pages_ahead_where_there_are_enough_and_only_what_it_must_otherwise():
    s = _scheduler(num_pages=1 + 200, page_size=1, max_model_len=180, k=1)
    s.add(_request(0, 4, max_tokens=150))
    _prefilled(s.plan_mixed_step())
    r = s.running[0]
    first = len(r.pages)
    r.num_computed += first - 4
    assert s.reserve([r]) and len(r.pages) > first + 60
    again = len(r.pages)
    assert s.reserve([r]) and len(r.pages) == again, "enough for a while"
    grants = s.grants
    assert [g.first for g in grants] == [0, first] and sum(len(g.pages) for g in grants) == again


def test_preemption_takes_the_youngest_and_puts_it_first_in_line():
    s = _scheduler(num_pages=1 + 12, page_size=2, k=1)
    for i in range(2):
        s.add(_request(i, 4, max_tokens=8))
    rows = s.plan_mixed_step()
    _prefilled(rows)
    old, young = s.running
    young.output_ids += [5, 6]
    s.admitted.clear()
    assert s.preempt_last() is young
    assert s.running == [old] and list(s.waiting) == [young] and young.pages == [] and young.slot is None
    assert (young.num_prefill, young.num_computed, young.num_preemptions) == (7, 0, 1), "it recomputes its output too"
    assert all(g.request is not young for g in s.grants)
    with pytest.raises(AssertionError, match="one request always fits"):
        s.preempt_last()


def test_random_traffic_never_loses_a_page_or_a_slot():
    rng = random.Random(3)
    s = _scheduler(num_pages=1 + 30, page_size=3, k=2, max_num_seqs=5)
    live: list[Request] = []
    for number in range(400):
        r = _request(number, rng.randint(1, 20), rng.randint(1, 20))
        s.add(r)
        live.append(r)
        if s.wants_mixed_step():
            _prefilled(s.plan_mixed_step())
        decoding = [x for x in s.running if not x.is_prefilling]
        while not s.reserve(decoding):
            out = s.preempt_last()
            decoding = [x for x in decoding if x is not out]
        assert all(s.capacity_tokens(x) <= len(x.pages) * 3 for x in decoding), "a round stays within its pages"
        for x in decoding:
            x.num_computed = min(x.num_computed + rng.randint(0, 3), x.limit(64) - 1)
        owned = [p for x in s.running for p in x.pages]
        assert len(owned) == len(set(owned)) and len(owned) + s.allocator.num_free == 30 and DUMMY_PAGE not in owned
        assert len({x.slot for x in s.running}) == len(s.running) <= 5
        for x in rng.sample(live, min(len(live), rng.randint(0, 2))):
            live.remove(x)
            s.remove(x)
        s.grants.clear()
        s.admitted.clear()
    for x in live:
        s.remove(x)
    assert s.allocator.num_free == 30 and not s.running and not s.waiting


# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("temperature", -0.1, "0 or more"),
        ("temperature", float("nan"), "0 or more"),
        ("top_k", -1, "0 or more"),
        ("top_p", 0.0, "above 0, up to 1"),
        ("top_p", 1.1, "above 0, up to 1"),
        ("max_tokens", 0, "1 or more"),
    ],
)
def test_sampling_values_that_cannot_work_are_refused(field, value, allowed):
    with pytest.raises(ValueError, match=f"{field}: {value} is not allowed; allowed: {allowed}"):
        SamplingParams(**{field: value})


def test_limits_of_a_request():
    r = _request(0, 10, max_tokens=8)
    assert r.limit(100) == 18 and r.limit(12) == 12
    r.output_ids += [1, 2]
    assert r.num_tokens == 12
    assert FinishReason.LENGTH == "length"
