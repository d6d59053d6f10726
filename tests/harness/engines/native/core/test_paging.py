"""Conformance 31, 37-44: pages of every size, stale and foreign KV never read, preemption, aborts, no leak."""

from __future__ import annotations

import random

import pytest
import torch
from toy.engines import assert_idle, drive, generate, make_engine, named_strategy, outputs, request
from toy.oracle import assert_as_oracle, continuations
from toy.plans import CPU
from toy.prompts import text_prompt
from toy.scripted import PATTERNS, Script, Scripted

from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.pages import DUMMY_PAGE, PageAllocator
from specbench.harness.engines.native.core.request import FinishReason
from specbench.harness.engines.native.models.forward import KVCache

PAGE_SIZES = [1, 16, 32, 64, 128]


def _strategies(requests, oracle, k=3) -> dict:
    return {
        "scripted": lambda: Scripted(k, Script.of(requests, oracle, PATTERNS["cycling"](k))),
        "eagle": lambda: named_strategy("eagle", k=k, head="random"),
        "parallel-eagle": lambda: named_strategy("parallel-eagle", k=k, head="random"),
        "ngram": lambda: named_strategy("ngram", k=k, min_n=1),
        "no-spec": lambda: named_strategy("no-spec"),
    }


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("strategy", ["scripted", "eagle"])
def test_c37_page_boundaries_at_every_offset(main_plan, page_size, strategy):
    """Prompts one token apart: rounds begin at every offset of a page."""
    start = max(page_size - 12, 1)
    requests = [request(i, text_prompt(i, start + i), max_tokens=10) for i in range(14)]
    oracle = continuations(main_plan, requests)
    engine = make_engine(
        main_plan, _strategies(requests, oracle)[strategy](), page_size=page_size, max_model_len=200, max_num_seqs=14,
        max_num_batched_tokens=512,
    )  # fmt: skip
    assert_as_oracle(engine, generate(engine, requests), oracle, f"page {page_size}")


def _caches(engine: Engine) -> list[KVCache]:
    return [*engine.builder.cache.layers, *([engine.drafter._cache] if hasattr(engine.drafter, "_cache") else [])]


def _poison_all(engine: Engine) -> None:
    for cache in _caches(engine):
        cache.k.fill_(float("nan"))
        cache.v.fill_(float("nan"))


def poison_stale(engine: Engine) -> None:
    """NaN in every slot that holds no KV of a running request's first n tokens, in target and drafter caches."""
    state, page = engine.state, engine.config.page_size
    valid = torch.zeros(engine._num_pages, page, dtype=torch.bool)
    lengths = state.n_S.tolist()
    for r in engine.scheduler.running:
        at = torch.arange(lengths[r.slot])
        pages = torch.tensor(r.pages, dtype=torch.int64)[at // page]
        assert not valid[pages, at % page].any(), "two requests share a KV slot"
        valid[pages, at % page] = True
    stale = ~valid.to(state.device)
    for cache in _caches(engine):
        cache.k[stale] = float("nan")
        cache.v[stale] = float("nan")


@pytest.mark.parametrize("page_size", [1, 4, 64])
@pytest.mark.parametrize("strategy", ["scripted", "eagle", "parallel-eagle", "ngram", "no-spec"])
def test_c38_c39_unallocated_and_rejected_kv_is_never_read(main_plan, page_size, strategy):
    """Poison after each round in all pages nobody owns and beyond n' in the owned ones; plenty of preemptions."""
    requests = [
        request(i, text_prompt(i, 3 + 4 * i), max_tokens=20, temperature=0.7 * (i % 2), seed=i) for i in range(8)
    ]
    oracle = continuations(main_plan, requests)
    engine = make_engine(
        main_plan,
        _strategies(requests, oracle)[strategy](),
        page_size=page_size,
        num_pages=1 + -(-130 // page_size),
        max_num_batched_tokens=16,
    )
    _poison_all(engine)
    finished = generate(engine, requests, after_step=poison_stale)
    assert_as_oracle(engine, finished, oracle, strategy)


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("strategy", ["scripted", "eagle", "parallel-eagle", "ngram", "no-spec"])
def test_c38_only_padding_writes_to_the_dummy_page(strategy, page_size):
    """What several rows write at once is anything: a request that reads it has drafts that come out otherwise."""
    requests = [request(i, text_prompt(i, n), max_tokens=24) for i, n in enumerate((1, 2, 7, 19, 12))]
    oracle = continuations(CPU, requests)
    make = _strategies(requests, oracle, k=8)[strategy]
    engine = make_engine(CPU, make(), page_size=page_size, max_num_batched_tokens=64, max_num_seqs=3)
    for cache in _caches(engine):
        cache.k[DUMMY_PAGE] = cache.v[DUMMY_PAGE] = 7.0
    generate(engine, requests)
    for cache in _caches(engine):
        assert (cache.k[DUMMY_PAGE] == 7.0).all() and (cache.v[DUMMY_PAGE] == 7.0).all()


class ShuffledPages(PageAllocator):
    """Hands pages out in random order."""

    def allocate(self, count: int) -> list[int] | None:
        if count > len(self._free):
            return None
        picked = random.Random(count * 31 + len(self._free)).sample(self._free, count)
        self._free = [p for p in self._free if p not in picked]
        self._taken.update(picked)
        return picked


@pytest.mark.parametrize("strategy", ["scripted", "eagle"])
def test_c40_shuffled_pages_equal_contiguous_ones(plan, strategy):
    requests = [request(i, text_prompt(i, 5 + 6 * i), max_tokens=24) for i in range(6)]
    oracle = continuations(plan, requests)
    engine = make_engine(plan, _strategies(requests, oracle)[strategy]())
    engine.allocator = engine.scheduler.allocator = ShuffledPages(engine._num_pages, engine.config.page_size)
    shuffled = False

    def look(engine: Engine) -> None:
        nonlocal shuffled
        shuffled |= any(sorted(r.pages) != r.pages for r in engine.scheduler.running)

    assert_as_oracle(engine, generate(engine, requests, after_step=look), oracle)
    assert shuffled


@pytest.mark.parametrize("strategy", ["scripted", "eagle"])
def test_c41_lengths_far_apart_share_a_batch(main_plan, strategy):
    requests = [request(i, text_prompt(i, n), max_tokens=12) for i, n in enumerate((1, 17, 700))]
    oracle = continuations(main_plan, requests)
    engine = make_engine(
        main_plan,
        _strategies(requests, oracle)[strategy](),
        max_model_len=1024,
        page_size=16,
        max_num_batched_tokens=256,
    )
    assert_as_oracle(engine, generate(engine, requests), oracle)


@pytest.mark.parametrize("strategy", ["scripted", "eagle", "ngram", "no-spec"])
def test_c42_preempted_requests_say_the_same(plan, strategy):
    requests = [
        request(i, text_prompt(i, 4 + 3 * i), max_tokens=30, temperature=0.7 * (i % 2), seed=i) for i in range(8)
    ]
    oracle = continuations(plan, requests)
    engine = make_engine(plan, _strategies(requests, oracle)[strategy](), num_pages=20, page_size=4)
    finished = generate(engine, requests)
    assert_as_oracle(engine, finished, oracle)
    assert sum(r.num_preemptions for r in finished.values()) > 0


@pytest.mark.parametrize("strategy", ["scripted", "eagle"])
@pytest.mark.parametrize("after", [0, 1, 2, 5, 9])
def test_c43_aborts_before_during_and_after_prefill(plan, strategy, after):
    requests = [request(i, text_prompt(i, 6 + 7 * i), max_tokens=30) for i in range(7)]
    oracle = continuations(plan, requests)
    engine = make_engine(plan, _strategies(requests, oracle)[strategy](), max_num_batched_tokens=10)
    for r in requests:
        engine.add(r)
    finished = {}
    for _ in range(after):
        finished |= {r.id: r for r in engine.step()}
    doomed = [1, 3, 6]
    for number in doomed:
        engine.abort(number)
    rest = drive(engine)
    assert not finished.keys() & rest.keys()
    finished |= rest
    assert finished.keys() == set(range(7))
    assert_idle(engine)
    for number in doomed:
        assert finished[number].finish_reason is FinishReason.ABORT
        said = finished[number].output_ids
        assert said == oracle[number][: len(said)]
    assert_as_oracle(engine, {i: r for i, r in finished.items() if i not in doomed}, oracle)


def test_c43_an_abort_that_comes_too_late_hits_nobody():
    engine = make_engine(CPU)
    generate(engine, [request(1, text_prompt(1, 5), max_tokens=3)])
    engine.abort(1)
    engine.abort(99)
    again = generate(engine, [request(1, text_prompt(1, 5), max_tokens=3)])
    assert again[1].finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("strategy", ["scripted", "eagle", "ngram", "no-spec"])
def test_c44_random_requests(plan, strategy):
    """Random lengths, stops, aborts and too few pages: nothing leaks, nobody is lost, everyone says what it says alone.

    Four strategies and four lags: more than a thousand requests on a CPU.
    """
    rng = random.Random(17)
    shapes = [(first, rng.randint(1, 40), rng.randint(1, 24)) for first in range(40)]
    rng.seed(plan.status_lag)
    kinds = [dict(temperature=0.0), dict(temperature=0.8), dict(temperature=0.5, top_k=9)]
    base = [
        request(i, text_prompt(first, length), max_tokens=most, seed=i, **kinds[i % 3])
        for i, (first, length, most) in enumerate(shapes)
    ]
    alone = continuations(plan, base)
    engine = make_engine(
        plan, _strategies(base, alone)[strategy](), max_model_len=72, num_pages=1 + 20, page_size=4, max_num_seqs=7,
        max_num_batched_tokens=rng.choice((9, 30)),
    )  # fmt: skip
    num = 120
    waiting, finished, aborted = [], {}, set()
    for number in range(num):
        i = rng.randrange(len(base))
        sampling = dict(kinds[i % 3], max_tokens=base[i].sampling.max_tokens, seed=i)
        if rng.random() < 0.3:
            sampling["stop_token_ids"] = tuple(rng.sample(alone[i], 2))
        waiting.append((request(number, base[i].prompt_ids, **sampling), i))
    of = {r.id: i for r, i in waiting}
    waiting.reverse()
    while waiting or engine.has_work:
        if waiting and rng.random() < 0.7:
            engine.add(waiting.pop()[0])
        if rng.random() < 0.05 and engine.scheduler.running:
            victim = rng.choice([*engine.scheduler.running, *engine.scheduler.waiting])
            aborted.add(victim.id)
            engine.abort(victim.id)
        for done in engine.step():
            assert done.id not in finished
            finished[done.id] = done
    assert finished.keys() == set(range(num))
    assert_idle(engine)
    completed = {}
    for number, done in finished.items():
        if done.finish_reason is FinishReason.ABORT:
            assert number in aborted and done.output_ids == alone[of[number]][: len(done.output_ids)]
        else:
            completed[number] = done
    assert_as_oracle(engine, completed, {number: alone[of[number]] for number in completed})
    reasons = [done.finish_reason for done in finished.values()]
    assert min(reasons.count(reason) for reason in FinishReason) > 1
    assert sum(done.num_preemptions for done in finished.values()) > 2


def _attributes(holder: object) -> list[str]:
    slots = [name for kind in type(holder).__mro__ for name in getattr(kind, "__slots__", ())]
    return slots + list(getattr(holder, "__dict__", ()))


def _tensors(engine: Engine) -> dict[str, int]:
    """Addresses of everything that a captured round reads or writes by address."""
    found = {}
    holders: dict[str, object] = {"state": engine.state}
    if engine.state.tree is not None:
        holders["state.tree"] = engine.state.tree
    for key, captured in enumerate(engine.launcher.rounds()):
        batch = captured.batch
        named = {"": batch, ".rows": batch.rows, ".outcome": batch.outcome, ".next_rows": batch.next_rows}
        holders |= {f"round{key}{name}": buffers for name, buffers in {**named, ".work": batch.work}.items()}
    for label, holder in holders.items():
        for name in ("features_TF", "draft_state_BH") if label.endswith(".work") else _attributes(holder):
            value = getattr(holder, name)
            if isinstance(value, torch.Tensor):
                found[f"{label}.{name}"] = value.data_ptr()
    for index, cache in enumerate(_caches(engine)):
        found |= {f"cache{index}.k": cache.k.data_ptr(), f"cache{index}.v": cache.v.data_ptr()}
    return found


@pytest.mark.parametrize("strategy", ["scripted", "eagle", "ngram", "no-spec"])
def test_c31_addresses_are_stable_over_100_rounds(plan, strategy):
    requests = [request(i, text_prompt(i, 5 + i), max_tokens=60) for i in range(9)]
    oracle = continuations(plan, requests)
    engine = make_engine(plan, _strategies(requests, oracle)[strategy](), max_num_seqs=3)
    seen: dict[str, int] = {}

    def look(engine: Engine) -> None:
        for name, address in _tensors(engine).items():
            assert seen.setdefault(name, address) == address, f"{name} moved"

    generate(engine, requests, after_step=look)
    assert engine._next_step > (100 if strategy != "scripted" else 60)
    assert {"state.tokens_SL", "state.temperature_S"} <= seen.keys()
    assert all(any(name.endswith(end) for name in seen) for end in (".rows.ids_T", ".outcome.status_BX", ".cu_q_B1"))


def test_output_does_not_depend_on_page_size_or_batch_size():
    wanted = None
    for page_size, max_num_seqs in ((1, 1), (3, 2), (16, 17), (64, 5)):
        requests = [request(i, text_prompt(i, 4 + i), max_tokens=12, temperature=0.5, seed=i) for i in range(17)]
        engine = make_engine(
            CPU, named_strategy("eagle", k=2, head="random"), page_size=page_size, max_num_seqs=max_num_seqs
        )
        found = outputs(generate(engine, requests))
        wanted = wanted or found
        assert found == wanted
