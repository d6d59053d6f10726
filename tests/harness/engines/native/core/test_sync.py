"""Conformance 54: what the host waits for changes no output, is named in the step log, and is used where it is read."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from toy.engines import assert_same_acceptance, decode_rows, generate, make_engine, named_strategy, request
from toy.few_words import FewWords
from toy.oracle import assert_as_oracle, continuations
from toy.plans import CPU, Plan, params
from toy.prompts import text_prompt
from toy.scripted import PATTERNS, Script, Scripted

from specbench.harness.engines.native.core import batch as engine_batch
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.graphs import DecodeRound
from specbench.harness.engines.native.core.host_view import HostView
from specbench.harness.engines.native.core.layouts import decode_batch
from specbench.harness.engines.native.core.multi_sync import MultiSync
from specbench.harness.engines.native.core.sampler import SamplingMode
from specbench.kernels.triton_support import triton

MULTI = Plan("cpu", sync="multi")
GRAPHS = ("none", "piecewise", "full_decode_only", "full_and_piecewise")
BASES = [CPU, *(Plan("cuda", graph) for graph in GRAPHS)]


def _requests(num: int = 6, max_tokens: int = 20) -> list:
    return [
        request(i, text_prompt(i, 4 + 5 * i), max_tokens=max_tokens + i, temperature=0.7 * (i % 2), seed=i)
        for i in range(num)
    ]


def _policies(base: Plan) -> list[Plan]:
    return [base, replace(base, sync="multi"), *(replace(base, sync="none", status_lag=lag) for lag in (1, 3))]


@pytest.mark.parametrize("base", params(BASES))
@pytest.mark.parametrize("strategy", ["scripted", "eagle", "naive-eagle", "ngram", "parallel-eagle", "no-spec"])
def test_c54_policies_give_the_same_outputs_and_acceptance(base, strategy):
    requests = _requests()
    oracle = continuations(base, requests)
    engines = []
    for plan in _policies(base):
        chosen = {
            "scripted": lambda: Scripted(3, Script.of(requests, oracle, PATTERNS["cycling"](3))),
            "eagle": lambda: named_strategy("eagle", k=3, head="random"),
            "naive-eagle": lambda: named_strategy("naive-eagle", k=2, head="random"),
            "ngram": lambda: named_strategy("ngram", k=3, min_n=1),
            "parallel-eagle": lambda: named_strategy("parallel-eagle", k=3, head="random"),
            "no-spec": lambda: named_strategy("no-spec"),
        }[strategy]()
        engine = make_engine(plan, chosen)
        assert_as_oracle(engine, generate(engine, [replace(r, output_ids=[]) for r in requests]), oracle, plan.name)
        engines.append(engine)
    assert_same_acceptance(engines)


@pytest.mark.parametrize("base", params(BASES))
def test_c54_policies_agree_where_acceptance_varies(base, few_words: FewWords):
    requests = _requests()
    oracle = few_words.continuations(base, requests)
    engines = []
    for plan in _policies(base):
        engine = few_words.engine(plan, 3)
        assert_as_oracle(engine, generate(engine, [replace(r, output_ids=[]) for r in requests]), oracle, plan.name)
        engines.append(engine)
    assert_same_acceptance(engines)
    assert len({r.num_accepted for r in decode_rows(engines[0])}) > 2


# -- the step log ------------------------------------------------------------------------------------------------------

NAMES = {
    ("single", "padded"): "sampled_ids",
    ("single", "unpadded"): "sampled_ids",
    ("multi", "padded"): "sampled_ids,max_seq_len,draft_ids",
    ("multi", "unpadded"): "sampled_ids,max_seq_len,max_query_len,draft_ids",
    ("none", "padded"): "",
}


@pytest.mark.parametrize("base", params([CPU, Plan("cuda"), Plan("cuda", "piecewise")]))
@pytest.mark.parametrize(("sync", "drafter"), NAMES)
def test_c54_the_step_log_names_every_wait(base, few_words: FewWords, sync, drafter):
    plan = replace(base, sync=sync, drafter=drafter, status_lag=2 * (sync == "none"))
    engine = few_words.engine(plan, 3)
    generate(engine, _requests(4))
    rows = [r for r in engine.log.rows if r.kind == "decode"]
    last = max(r.step for r in rows)
    # Of late reading only the last step is waited for: nothing stands behind it.
    steady = [r for r in rows if sync != "none" or r.step < last]
    assert {r.syncs for r in steady} == {NAMES[sync, drafter]}
    assert all(r.num_syncs == len(list(filter(None, r.syncs.split(",")))) for r in engine.log.rows)
    if sync == "multi":
        assert {r.syncs for r in engine.log.rows} == {NAMES[sync, drafter]}, "mixed steps wait as decode rounds do"


def test_c54_a_baseline_waits_for_its_tokens_only():
    engine = make_engine(MULTI)
    generate(engine, _requests(3))
    assert {r.syncs for r in engine.log.rows} == {"sampled_ids"}


@pytest.mark.gpu
@pytest.mark.parametrize("graph", ["full_decode_only", "full_and_piecewise"])
def test_c54_a_captured_drafter_has_its_bounds_and_asks_for_none(few_words: FewWords, graph):
    engine = few_words.engine(Plan("cuda", graph, "multi"), 3)
    generate(engine, _requests(4))
    assert {r.syncs for r in engine.log.rows if r.kind == "decode"} == {"sampled_ids,draft_ids"}


# -- what is read is used ----------------------------------------------------------------------------------------------


def _lie(monkeypatch: pytest.MonkeyPatch, method: str, change: Callable[[Any], Any]) -> None:
    """Makes the host misread."""
    honest = getattr(HostView, method)
    monkeypatch.setattr(HostView, method, lambda self, *args: change(honest(self, *args)))


def _lie_about(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[Any], Any]) -> list:
    """Makes one named read return something else; the list collects what it returned."""
    honest, told = HostView.read, []

    def read(self: HostView, which: str, tensor: torch.Tensor) -> Any:
        value = honest(self, which, tensor)
        if which == name:
            value = change(value)
            told.append(value)
        return value

    monkeypatch.setattr(HostView, "read", read)
    return told


_LIES = {
    "next token": (
        "emitted",
        lambda rows: [[*tokens[:-1], (tokens[-1] + 1) % 128] if tokens else [] for tokens in rows],
    ),
    "length": ("accepted", lambda rows: [(a, n - (a > 0)) for a, n in rows]),
}


@pytest.mark.parametrize("lie", _LIES)
@pytest.mark.parametrize("plan", [CPU, MULTI], ids=lambda plan: plan.sync)
def test_the_host_makes_next_tokens_and_lengths_of_what_it_read(monkeypatch, few_words: FewWords, plan, lie):
    """With `multi` a wrong value spoils the text; with `single` the device goes by its own."""

    def said() -> list[list[int]]:
        engine, requests = few_words.engine(plan, 3), _requests(3)
        for r in requests:
            engine.add(r)
        for _ in range(12):
            engine.step()
        return [r.output_ids for r in requests]

    honest = said()
    _lie(monkeypatch, *_LIES[lie])
    assert (said() == honest) == (plan.sync == "single")


def test_the_drafts_that_are_verified_are_those_the_host_sent(monkeypatch):
    requests = [request(i, text_prompt(i, 5 + i), max_tokens=20) for i in range(3)]
    oracle = continuations(CPU, requests)
    engine = make_engine(MULTI, Scripted(3, Script.of(requests, oracle, PATTERNS["perfect"](3))))
    told = _lie_about(monkeypatch, "draft_ids", lambda rows: [[(d + 1) % 128 for d in drafts] for drafts in rows])
    finished = generate(engine, requests)
    assert told and {r.num_accepted for r in decode_rows(engine)} == {0}
    assert_as_oracle(engine, finished, oracle)


class SpiedAttention:
    """Attention that notes the bounds it is launched with."""

    def __init__(self, inner: Any):
        self._inner = inner
        self.max_q: list[int] = []
        self.max_kv: list[int] = []

    def __call__(self, layer: int, qkv_TX: torch.Tensor, batch: Any, cache: Any, *out: torch.Tensor) -> torch.Tensor:
        self.max_q.append(batch.parts[0].meta.max_q)
        self.max_kv.append(batch.parts[0].meta.max_kv)
        return self._inner(layer, qkv_TX, batch, cache, *out)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _spied(engine: Engine) -> SpiedAttention:
    spy = SpiedAttention(engine.drafter._attention)  # type: ignore[union-attr]
    engine.drafter._attention = spy  # type: ignore[union-attr]
    return spy


def test_drafter_launches_are_bounded_by_the_length_that_was_read(monkeypatch, few_words: FewWords):
    engine = few_words.engine(MULTI, 2)
    spy = _spied(engine)
    told = _lie_about(monkeypatch, "max_seq_len", lambda longest: longest)
    generate(engine, [request(0, text_prompt(0, 9), max_tokens=30)])
    decoding = sum(r.kind == "decode" for r in engine.log.rows)
    bounds = [min(longest + 2 * 3, engine.state.max_kv) for longest in told[-decoding:]]
    assert spy.max_kv[-2 * decoding :: 2] == spy.max_kv[-2 * decoding + 1 :: 2] == bounds and len(set(bounds)) > 3
    monkeypatch.undo()
    _lie_about(monkeypatch, "max_seq_len", lambda longest: 10)
    generate(engine, [request(1, text_prompt(1, 9), max_tokens=30)])
    assert spy.max_kv[-4:] == [16] * 4


def test_a_captured_pass_keeps_its_bound_beside_one_that_is_not(few_words: FewWords):
    """The warm-ups before a capture read the padding's length; a graph that kept it would be made for no keys."""
    engine = few_words.engine(MULTI, 2)
    batch = decode_batch(engine.state, 2)
    first, later = batch.drafter_forward(), batch.draft_step_forward(2)
    host = engine.views.of(batch, [])
    host.acceptance_launched()
    MultiSync(engine.state, frozenset({"first", "later"}), frozenset({"later"})).after_accept(batch, host)
    assert first.parts[0].meta.max_kv == 2 * batch.decode_q < engine.state.max_kv
    assert later.parts[0].meta.max_kv == batch.draft_step_forward(3).parts[0].meta.max_kv == engine.state.max_kv


@pytest.mark.parametrize("strategy", ["ngram", "scripted"])
def test_no_length_is_read_where_no_launch_takes_it(strategy):
    requests = _requests(3)
    script = Script.of(requests, continuations(CPU, requests), PATTERNS["cycling"](3))
    engine = make_engine(MULTI, named_strategy("ngram", k=3) if strategy == "ngram" else Scripted(3, script))
    generate(engine, requests)
    assert {r.syncs for r in engine.log.rows} == {"sampled_ids,draft_ids"}


def test_unpadded_launches_are_bounded_by_the_length_that_was_read(monkeypatch, few_words: FewWords):
    engine = few_words.engine(Plan("cpu", sync="multi", drafter="unpadded"), 1)
    spy = _spied(engine)
    _lie_about(monkeypatch, "max_seq_len", lambda longest: 10)
    generate(engine, [request(0, text_prompt(0, 9), max_tokens=20)])
    assert spy.max_kv[1:] and set(spy.max_kv[1:]) == {14}


def test_unpadded_launches_have_the_query_length_that_was_read(monkeypatch, few_words: FewWords):
    plan = Plan("cpu", sync="multi", drafter="unpadded")
    engine = few_words.engine(plan, 2)
    spy = _spied(engine)
    told = _lie_about(monkeypatch, "max_query_len", lambda longest: longest + 40)
    generate(engine, [request(i, text_prompt(i, 9), max_tokens=30) for i in range(3)])
    assert spy.max_q[::2] == told and set(spy.max_q[1::2]) == {1}
    assert {41, 42, 43} <= set(told), "one, two or three rows of the longest request, and 40"


# -- torch's own count -------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("graph", ["none", "piecewise", "full_decode_only"])
@pytest.mark.parametrize(("sync", "drafter"), NAMES)
def test_c54_torch_sees_the_waits_that_are_named(few_words: FewWords, graph, sync, drafter):
    """One warning for each named read; sampled ids are waited for by an event, which torch does not warn of."""
    parts = (("first", "piecewise"),) if drafter == "unpadded" and graph == "full_decode_only" else ()
    plan = Plan("cuda", graph, sync, 2 * (sync == "none"), drafter, parts)
    engine = few_words.engine(plan, 3)
    for r in _requests(3, max_tokens=120):
        engine.add(r)
    for _ in range(20):  # prompts, captures, compilation
        engine.step()
    while engine.readback:
        engine.readback.collect(0)
    engine.log.take()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(12):
                engine.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    engine.readback.collect(0)
    rows = {r.step: r.syncs for r in engine.log.rows}
    assert len(rows) == 12 and {r.kind for r in engine.log.rows} == {"decode"}
    named = sum(name not in ("", "sampled_ids") for syncs in rows.values() for name in syncs.split(","))
    assert sum("synchroniz" in str(w.message) for w in seen) == named
    if sync == "multi":
        assert named >= 12


# -- lengths met before anything is measured ---------------------------------------------------------------------------


def test_capture_meets_every_length_that_a_read_bound_can_have(few_words: FewWords, monkeypatch):
    """Bounds choose kernels: one that no dummy round had would be compiled in the middle of a measured block."""
    engine = few_words.engine(MULTI, 3)
    bounds = set()
    bound_drafter = engine_batch.StepBatch.bound_drafter
    monkeypatch.setattr(
        engine_batch.StepBatch, "bound_drafter", lambda b, parts, n: bounds.add(n) or bound_drafter(b, parts, n)
    )
    n_S = engine.state.n_S.clone()
    engine.launcher.capture([SamplingMode.GREEDY])
    assert max(bounds) >= engine.config.max_model_len
    assert {1 << bit for bit in range(4, max(bounds).bit_length())} <= bounds
    assert torch.equal(engine.state.n_S, n_S)


@pytest.mark.parametrize(
    ("strategy", "drafts"),
    [
        ("eagle", dict(k=3)),
        ("parallel-eagle", dict(k=3)),
        ("eagle-topk", dict(num_steps=2, topk=2, num_draft_tokens=4)),
        ("eagle-topk", dict(num_steps=5, topk=8, num_draft_tokens=64)),  # more nodes than a request has tokens
    ],
)
def test_dummy_requests_are_as_long_as_real_ones_may_be_and_no_longer(strategy, drafts, monkeypatch):
    engine = make_engine(MULTI, named_strategy(strategy, head="random", **drafts), max_model_len=40, max_num_seqs=2)
    lengths, launch = [], DecodeRound.launch

    def seen(decode_round, *given):
        lengths.append(int(engine.state.n_S[engine.state.dummy_slot]))
        return launch(decode_round, *given)

    monkeypatch.setattr(DecodeRound, "launch", seen)
    engine.launcher.capture([SamplingMode.GREEDY])
    assert set(lengths) == {16, 32, 40}


@pytest.mark.gpu
@pytest.mark.parametrize("graph", ["none", "piecewise"])
def test_no_kernel_is_compiled_for_a_length_after_capture(few_words: FewWords, graph, monkeypatch):
    engine = few_words.engine(Plan("cuda", graph, "multi", drafter="unpadded"), 3)
    engine.launcher.capture([SamplingMode.GREEDY])
    generate(engine, [request(0, text_prompt(0, 8), max_tokens=12)])
    engine.add(request(1, text_prompt(1, engine.config.max_model_len - 30), max_tokens=12))
    while engine.scheduler.wants_mixed_step():
        engine.step()
    compiled = []
    monkeypatch.setattr(
        triton.knobs.runtime, "jit_post_compile_hook", lambda **given: compiled.append(given["fn"].name)
    )
    while engine.has_work:
        engine.step()
    assert not compiled
