"""Conformance 24, 25, 27-29, 33-35: batch sizes, padding lanes and ragged steps."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from toy.engines import drive, generate, make_engine, named_strategy, outputs, pad_rounds, request
from toy.oracle import assert_as_oracle, continuations
from toy.plans import CPU
from toy.prompts import text_prompt
from toy.scripted import PATTERNS, Script, Scripted

from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.graph_sizes import capture_sizes


def _requests(num: int, max_tokens: int = 10) -> list:
    return [
        request(i, text_prompt(i, 2 + 5 * i % 23), max_tokens=max_tokens, temperature=0.6 * (i % 2), seed=i)
        for i in range(num)
    ]


def test_capture_sizes_cover_every_batch():
    for most in (1, 2, 3, 4, 7, 8, 9, 17, 64, 65, 100, 256):
        sizes = capture_sizes(most)
        assert sizes == sorted(set(sizes)) and sizes[-1] == most and sizes[0] == 1


@pytest.mark.parametrize("num", [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17])
@pytest.mark.parametrize("strategy", ["scripted", "eagle"])
def test_c24_batches_around_every_captured_size(main_plan, num, strategy):
    requests = _requests(num)
    oracle = continuations(main_plan, requests)
    chosen = {
        "scripted": Scripted(3, Script.of(requests, oracle, PATTERNS["cycling"](3))),
        "eagle": named_strategy("eagle", k=2, head="random"),
    }[strategy]
    engine = make_engine(main_plan, chosen, max_num_seqs=17, max_num_batched_tokens=512)
    if not main_plan.pads:
        pad_rounds(engine, capture_sizes(17))
    assert_as_oracle(engine, generate(engine, requests), oracle)
    assert max(r.batch_size for r in engine.log.rows) == num


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6, 7, 8])
def test_c25_rows_are_a_multiple_of_the_rows_of_a_request(main_plan, k):
    requests = _requests(9)
    oracle = continuations(main_plan, requests)
    script = Script.of(requests, oracle, PATTERNS["random"](k))
    engine = make_engine(main_plan, Scripted(k, script), max_num_seqs=9, max_num_batched_tokens=512)
    if not main_plan.pads:
        pad_rounds(engine, capture_sizes(9))
    assert_as_oracle(engine, generate(engine, requests), oracle)
    rounds = [r for r in engine.log.rows if r.kind == "decode"]
    sizes = capture_sizes(9)
    for row in rounds:
        size = next(s for s in sizes if s >= row.batch_size)
        assert (row.num_rows, row.num_padded_rows) == (row.batch_size * (k + 1), size * (k + 1))


_LAYOUT = {"slot_B", "row_req_T", "row_off_T", "num_drafts_B", "q_len_B", "base_row_B", "cu_q_B1", "next_cu_q_B1"}


def _poison(engine: Engine) -> None:
    """Garbage in every buffer that a round must fill itself, and in the dummy slot and page."""
    for captured in engine.launcher.rounds():
        batch = captured.batch
        for name in batch.__slots__:
            value = getattr(batch, name)
            if isinstance(value, torch.Tensor) and name not in _LAYOUT:
                value.fill_(0x7FFF_FFF0 if value.dtype == torch.int32 else 0x7FFF_FFFF_FFF0)
        for tensor in (batch.work.features_TF, batch.work.hidden_TH, batch.work.draft_state_BH):
            if tensor is not None:
                tensor.fill_(float("nan"))
    state = engine.state
    state.tokens_SL[state.dummy_slot].fill_(127)
    state.drafts_SK[state.dummy_slot].fill_(-1)
    for cache in engine.builder.cache.layers:
        cache.k[0].fill_(float("nan"))
        cache.v[0].fill_(float("nan"))


@pytest.mark.parametrize("strategy", ["scripted", "eagle", "ngram"])
def test_c27_garbage_in_padding_lanes_changes_nothing(plan, strategy):
    requests = _requests(7, max_tokens=16)
    oracle = continuations(plan, requests)
    chosen = {
        "scripted": Scripted(3, Script.of(requests, oracle, PATTERNS["cycling"](3))),
        "eagle": named_strategy("eagle", k=3, head="random"),
        "ngram": named_strategy("ngram", k=2, min_n=1),
    }[strategy]
    engine = make_engine(plan, chosen, max_num_seqs=7)
    if not plan.pads:
        pad_rounds(engine, [2, 8, 16])
    finished = generate(engine, requests, after_step=_poison)
    assert_as_oracle(engine, finished, oracle)
    assert any(r.num_padded_rows > r.num_rows for r in engine.log.rows), "nothing was padded"


@pytest.mark.parametrize("strategy", ["scripted", "eagle"])
def test_c28_c29_batches_that_shrink_and_grow_leave_nothing_stale(plan, strategy):
    requests = [request(i, text_prompt(i, 3 + i), max_tokens=4 + 9 * (i % 3)) for i in range(24)]
    oracle = continuations(plan, requests)
    chosen = {
        "scripted": Scripted(2, Script.of(requests, oracle, PATTERNS["cycling"](2))),
        "eagle": named_strategy("eagle", k=2, head="random"),
    }[strategy]
    engine = make_engine(plan, chosen, max_num_seqs=9, max_num_batched_tokens=512)
    if not plan.pads:
        pad_rounds(engine, [1, 4, 9])
    finished = {}
    arrivals = iter(requests)
    for wave in (9, 1, 8, 2, 4):  # each wave arrives when the one before has shrunk to its last requests
        for _ in range(wave):
            engine.add(next(arrivals))
        while len(engine.scheduler.running) > 1 or engine.scheduler.waiting:
            finished |= {r.id: r for r in engine.step()}
    finished |= drive(engine)
    assert len(finished) == 24
    assert_as_oracle(engine, finished, oracle)
    assert len({r.batch_size for r in engine.log.rows if r.kind == "decode"}) > 4


@pytest.mark.parametrize("strategy", ["scripted", "eagle", "ngram", "no-spec"])
@pytest.mark.parametrize("budget", [1, 4, 7, 64])
def test_c33_c34_prompts_in_chunks_beside_decodes(main_plan, strategy, budget):
    """Chunks down to a single token, chunks of 4 (the pull request's size), decodes of K+1 rows beside them."""
    requests = [request(i, text_prompt(i, n), max_tokens=12 + 3 * i) for i, n in enumerate((1, 2, 9, 33, 4, 5, 17, 8))]
    oracle = continuations(main_plan, requests)
    chosen = {
        "scripted": Scripted(3, Script.of(requests, oracle, PATTERNS["cycling"](3))),
        "eagle": named_strategy("eagle", k=3, head="random"),
        "ngram": named_strategy("ngram", k=3, min_n=1),
        "no-spec": named_strategy("no-spec"),
    }[strategy]
    engine = make_engine(main_plan, chosen, max_num_batched_tokens=budget)
    finished = generate(engine, requests)
    assert_as_oracle(engine, finished, oracle, f"budget {budget}")
    by_step: dict[int, set[bool]] = {}
    for row in engine.log.rows:
        if row.kind == "mixed":
            by_step.setdefault(row.step, set()).add(row.is_prefill)
    assert {True, False} in by_step.values(), "no step held a prompt and a decode"


def test_a_prompt_chunk_has_one_row_of_logits(monkeypatch):
    """Beside decodes, which have K+1 of them."""
    engine = make_engine(CPU, named_strategy("eagle", k=3, head="random"), max_num_batched_tokens=16)
    target, counts = engine.builder.target, []
    logits = target.logits
    monkeypatch.setattr(target, "logits", lambda hidden_RH: counts.append(len(hidden_RH)) or logits(hidden_RH))
    generate(engine, [request(i, text_prompt(i, 5 + 8 * i), max_tokens=9) for i in range(4)])
    expected: Counter[int] = Counter()
    for row in engine.log.rows:
        expected[row.step] += 1 if row.is_prefill else 4
    assert counts == [expected[step] for step in range(engine.num_steps)]


@pytest.mark.parametrize("k", [1, 4])
def test_c35_the_first_decode_has_drafts_from_the_prompt(plan, k):
    requests = [request(i, text_prompt(i, 11), max_tokens=2 * (k + 1) + 1) for i in range(3)]
    oracle = continuations(plan, requests)
    engine = make_engine(plan, Scripted(k, Script.of(requests, oracle, PATTERNS["perfect"](k))))
    for r in requests:
        engine.add(r)
    engine.step()
    if plan.sync == "single":
        assert [len(r.output_ids) for r in requests] == [1, 1, 0], "24 rows hold two prompts and a part of the third"
    finished = drive(engine)
    assert outputs(finished).keys() == {0, 1, 2}
    assert_as_oracle(engine, finished, oracle)
    for number in range(3):
        first = next(r for r in engine.log.rows if r.request_id == number and not r.is_prefill)
        assert first.num_accepted == k


def test_mixed_steps_count_prompt_rows_as_prefill():
    engine = make_engine(CPU, named_strategy("eagle", k=2, head="random"), max_num_batched_tokens=5)
    generate(engine, [request(0, text_prompt(0, 13), max_tokens=4)])
    prefill = [r for r in engine.log.rows if r.is_prefill]
    assert [r.num_rows for r in prefill] == [5, 5, 3]
    assert [r.num_emitted for r in prefill] == [0, 0, 1]
    assert all(r.num_proposed == 0 and r.kind == "mixed" and not r.truncated for r in prefill)
