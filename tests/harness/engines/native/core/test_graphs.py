"""Conformance 26, 30, 32, 54, 55: captured rounds do what launched ones do, and the captured loop never waits."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from toy.engines import assert_same_acceptance, decode_rows, generate, make_engine, named_strategy, request
from toy.few_words import FewWords
from toy.oracle import assert_as_oracle, continuations
from toy.plans import CPU, CPU_PLANS, Plan, late
from toy.prompts import text_prompt
from toy.scripted import PATTERNS, Script, Scripted

from specbench.harness.engines.native.core import launcher as launcher_module
from specbench.harness.engines.native.core import layouts as layouts_module
from specbench.harness.engines.native.core.forward import EagerForward, PiecewiseForward
from specbench.harness.engines.native.core.graph_sizes import (
    MIN_CAPTURED_ROWS,
    capture_sizes,
    most_captured_rows,
    row_sizes,
)
from specbench.harness.engines.native.core.graphs import DecodeRound, split_round
from specbench.harness.engines.native.core.layouts import MixedEntry, MixedLayout, mixed_batch
from specbench.harness.engines.native.core.sampler import SamplingMode
from specbench.harness.engines.native.core.strategy import Phase
from specbench.harness.engines.native.models.shapes import SHAPES
from specbench.harness.engines.ranges import NullRanges
from specbench.harness.spec.plans import PLANS, GraphPlan, parse_plan

NAMES = ["advance", "verify", "accept", "draft_first", "draft_next", "draft_next"]


_ALONE = [(name, 1) for name in NAMES]


def _phases(names: list[str]) -> list[Phase]:
    return [Phase(name, lambda batch: None) for name in names]


@pytest.mark.parametrize(
    ("plan_name", "expected"),
    [
        ("none", _ALONE),
        ("piecewise", _ALONE),
        ("full_decode_only", [("target", 3), ("first", 1), ("later", 2)]),
        ("full_and_piecewise", [("target", 3), ("first", 1), ("later", 2)]),
        ("full", [("target", 3), ("first", 1), ("later", 2)]),
        ("one", [("round", 6)]),
    ],
)
def test_c30_plans_group_neighbouring_phases_and_keep_their_order(plan_name, expected):
    """The first drafter pass (K+1 rows) and the later ones (one row) are never one launch unless the whole round is."""
    phases = _phases(NAMES)
    segments = split_round(PLANS[plan_name], phases)
    assert [(s.name, len(s.phases)) for s in segments] == expected
    assert [p for s in segments for p in s.phases] == phases


def test_c30_a_round_without_drafter_is_one_target_graph():
    assert [s.name for s in split_round(PLANS["full"], _phases(NAMES[:3]))] == ["target"]


@pytest.mark.parametrize("modes", list(itertools.product(("none", "piecewise", "full"), repeat=3)))
def test_c30_no_graph_holds_phases_of_two_parts(modes):
    segments = split_round(GraphPlan(*modes, "none"), _phases(NAMES))
    captured = [s.name for s in segments if s.is_captured]
    assert captured == [part for part, mode in zip(("target", "first", "later"), modes, strict=True) if mode == "full"]
    assert [p.name for s in segments for p in s.phases] == NAMES


def test_the_hosts_own_phases_split_a_graph():
    """What the host does between target and drafter stands outside both graphs."""
    names = [*NAMES[:3], "next_tokens", *NAMES[3:], "draft_ids"]
    segments = split_round(PLANS["full_decode_only"], _phases(names))
    assert [(s.name, s.is_captured) for s in segments] == [
        ("target", True), ("next_tokens", False), ("first", True), ("later", True), ("draft_ids", False),
    ]  # fmt: skip


def test_row_sizes_of_mixed_steps():
    for most in (1, 3, 8, 17, 100, 256, 300, 511, 512, 2368, 5000):
        sizes = row_sizes(most)
        assert sizes == sorted(set(sizes)) and (sizes[0], sizes[-1]) == (1, most)
        assert all(above - below <= below / 8 for below, above in itertools.pairwise(sizes) if below >= 128)


def test_a_small_models_mixed_steps_are_captured_whatever_their_rows():
    """A large one's work hides the launches from hundreds of rows on."""
    rows = {name: most_captured_rows(SHAPES[name].config) for name in ("smollm2-135m", "qwen2.5-1.5b", "llama-3.1-8b")}
    assert rows["smollm2-135m"] > 60_000 and 4_000 < rows["qwen2.5-1.5b"] < 8_000
    assert (
        1_100 < rows["llama-3.1-8b"] < 1_200 and most_captured_rows(SHAPES["llama-2-70b"].config) == MIN_CAPTURED_ROWS
    )
    assert most_captured_rows(SHAPES["llama-3.1-8b"].config.with_layers(2)) == rows["llama-3.1-8b"], (
        "launches are fewer too"
    )
    assert most_captured_rows(SHAPES["qwen3-30b-a3b"].config) == MIN_CAPTURED_ROWS


@pytest.mark.parametrize(("num_rows", "size"), [(1, 1), (3, 4), (16, 16), (63, 64), (64, 64), (65, None)])
def test_a_captured_mixed_step_takes_the_smallest_size_that_holds_it(monkeypatch, num_rows, size):
    """One that fills its layout leaves the padding requests no rows; one beyond the largest has no graph."""
    engine = make_engine(CPU)
    launcher = engine.launcher
    launcher.plan, launcher._mixed_sizes = replace(launcher.plan, mixed="full"), row_sizes(64)
    asked = []

    class Graph:
        batch = mixed_batch(engine.state, launcher._filled([], 64))

        def __call__(self, clock):
            pass

    def overwrite(filled, batch):
        counts = filled.q_lens
        assert (counts[0], sum(counts), len(counts)) == (num_rows, size, min(5, size))
        assert filled.int32["cu_q_B1"][-1] == size

    monkeypatch.setattr(MixedLayout, "overwrite", overwrite)
    monkeypatch.setattr(launcher, "_mixed_graph", lambda size, mode, num_drafts: asked.append(size) or Graph())
    entry = MixedEntry(0, num_rows, True, True, num_rows)
    launcher.launch_mixed([entry], SamplingMode.GREEDY, NullRanges(), lambda b: engine.views.of(b, []))
    assert asked == ([] if size is None else [size])


def test_a_captured_mixed_step_is_overwritten_whole():
    """And where its graph looks for it: no tensor moves."""
    engine = make_engine(CPU, named_strategy("eagle", k=2, head="random"))
    decode, chunk = MixedEntry(0, 3, False, False, 9), MixedEntry(1, 5, True, True, 5)
    layouts = [engine.launcher._filled(entries, 16) for entries in ([], [decode, decode, chunk], [chunk])]
    captured = mixed_batch(engine.state, layouts[0])

    def written(batch) -> list[torch.Tensor]:
        of_batch = [batch.cu_q_B1, batch.chunk_cu_q_B1, batch.logit_row_N, batch.spread_R, batch.advance_B]
        return of_batch + [getattr(batch.rows, name) for name in layouts_module._OF_ROWS]

    places = [tensor.data_ptr() for tensor in written(captured)]
    for layout in layouts:
        layout.overwrite(captured)
        expected = written(mixed_batch(engine.state, layout))
        assert all(map(torch.equal, written(captured), expected)) and captured.q_lens == layout.q_lens
    assert [tensor.data_ptr() for tensor in written(captured)] == places
    assert layouts[1].int64["logit_row_N"].tolist() == [*range(6), 10, 15, *[0] * 7]


def test_steps_that_are_met_beforehand_have_no_more_requests_than_real_ones(monkeypatch):
    """Each request has rows of logits of its own, and kernels are compiled for the longest chunk."""
    engine = make_engine(CPU, max_num_seqs=3, max_num_batched_tokens=64)
    launcher, met = engine.launcher, []
    launcher.plan, launcher._mixed_sizes = replace(launcher.plan, mixed="piecewise"), row_sizes(40)
    monkeypatch.setattr(launcher, "launch_mixed", lambda entries, *_: met.append([e.num_rows for e in entries]))
    launcher._meet_rows(SamplingMode.GREEDY)
    assert [sum(rows) for rows in met] == [*row_sizes(40), 64 + 3][::-1], "the captured ones, and the most there can be"
    assert all(0 < len(rows) <= 3 and min(rows) > 0 for rows in met)


def test_kernels_of_few_rows_of_logits_are_met_beforehand(monkeypatch):
    """Dummy prompts bring one row each, real decodes K+1."""
    engine = make_engine(CPU, named_strategy("eagle", k=3, head="random"), max_num_seqs=5)
    met, target = [], engine.target
    monkeypatch.setattr(launcher_module, "use_triton", lambda tensor: True)
    monkeypatch.setattr(engine.launcher, "launch_mixed", lambda *_: None)
    monkeypatch.setattr(type(target), "logits", lambda self, hidden: met.append(tuple(hidden.shape)))
    engine.launcher._meet_rows(SamplingMode.GREEDY)
    assert met == [(min(size, 5 * (3 + 1)), target.config.hidden_size) for size in launcher_module.ROW_BLOCKS]


@pytest.mark.parametrize(
    ("strategy", "counts"),
    [
        (named_strategy("eagle", k=3, head="random"), (0, 1, 3)),
        (named_strategy("parallel-eagle", k=3, head="random"), (0, 1, 3)),
        (named_strategy("draft-model", k=3, draft="self:1"), (0, 1, 3)),
        (named_strategy("eagle-topk", topk=2, num_steps=3, num_draft_tokens=8, head="random"), (7,)),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_every_pass_of_a_round_has_piecewise_graphs_of_just_its_rows(monkeypatch, strategy, counts):
    """Neither launched kernel by kernel, for want of a graph that is large enough, nor padded."""
    met = []

    def run(self, model, batch, *rest, **named):
        met.append((len(batch.ids_T), self._sizes))
        return EagerForward()(model, batch, *rest, **named)

    monkeypatch.setattr(PiecewiseForward, "__call__", run)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    engine = make_engine(CPU, strategy, max_num_seqs=9)
    config = replace(engine.config, graph=PLANS["piecewise"])
    launcher = launcher_module.Launcher(config, engine.builder, lambda b: engine.views.of(b, []), counts)
    for size, k in itertools.product(capture_sizes(9), counts):
        launcher._launch_dummies(launcher.round_for(size, SamplingMode.GREEDY, k))
    assert met and all(num_rows in sizes for num_rows, sizes in met)


def test_rounds_that_have_been_used_are_met_over_dummy_requests(monkeypatch):
    """Each load of a run captures anew what it may need; the last one's requests are not run again."""
    engine = make_engine(CPU, named_strategy("eagle", k=2, head="random"), max_num_seqs=2)
    generate(engine, [request(i, text_prompt(i, 5), max_tokens=9) for i in range(2)])
    used, launched = engine.launcher.rounds(), []
    assert any(each.batch.slots for each in used)
    monkeypatch.setattr(DecodeRound, "launch", lambda self, *_: launched.append(self.batch.rows.slot_B.tolist()))
    for each in used:
        engine.launcher._launch_dummies(each)
    assert launched == [[engine.state.dummy_slot] * each.batch.num_requests for each in used]
    assert not any(each.batch.slots for each in used)


def _strategies(requests, oracle) -> dict:
    return {
        "no-spec": named_strategy("no-spec"),
        "scripted": Scripted(4, Script.of(requests, oracle, PATTERNS["cycling"](4))),
        "eagle": named_strategy("eagle", k=3, head="random"),
        "naive-eagle": named_strategy("naive-eagle", k=2, head="random"),
        "ngram": named_strategy("ngram", k=3, min_n=1),
        "parallel-eagle": named_strategy("parallel-eagle", k=3, head="random"),
    }


def _requests() -> list:
    kinds = [dict(temperature=0.0), dict(temperature=0.8), dict(temperature=0.6, top_k=9, top_p=0.9)]
    return [request(i, text_prompt(i, 4 + 5 * i), max_tokens=25, seed=i, **kinds[i % 3]) for i in range(7)]


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", ["no-spec", "scripted", "eagle", "naive-eagle", "ngram", "parallel-eagle"])
def test_c26_c55_graphs_give_eager_outputs_and_acceptance(graph_plan: Plan, strategy):
    requests = _requests()
    oracle = continuations(graph_plan, requests)
    counts = []
    for plan in (Plan("cuda"), graph_plan):
        engine = make_engine(plan, _strategies(requests, oracle)[strategy], max_num_seqs=7, max_num_batched_tokens=512)
        finished = generate(engine, [replace(r, output_ids=[]) for r in requests])
        assert_as_oracle(engine, finished, oracle, plan.name)
        counts.append({i: [r.num_accepted for r in decode_rows(engine, i)] for i in finished})
        modes = parse_plan(plan.graph, {})
        assert {r.graph for r in engine.log.rows if r.kind == "decode"} == {modes.target}
        assert {r.graph for r in engine.log.rows if r.kind == "mixed"} == {modes.mixed}
    assert counts[0] == counts[1]


_PARTS = [
    (*modes, ("none", "piecewise", "full")[index % 3])
    for index, modes in enumerate(itertools.product(("none", "piecewise", "full"), repeat=3))
]


@pytest.mark.gpu
@pytest.mark.parametrize("modes", _PARTS, ids="/".join)
def test_c26_the_mode_of_each_part_is_free(few_words: FewWords, modes):
    """Target, first pass, later passes and mixed steps launched each in its own way; drafts are sometimes accepted."""
    plan = Plan("cuda", parts=tuple(zip(("target", "first", "later", "mixed"), modes, strict=True)))
    requests = _requests()
    oracle = few_words.continuations(plan, requests)
    engines = []
    for each in (Plan("cuda"), plan):
        engine = few_words.engine(each, 3, max_num_seqs=5, max_num_batched_tokens=32)
        assert_as_oracle(engine, generate(engine, [replace(r, output_ids=[]) for r in requests]), oracle, each.name)
        engines.append(engine)
    assert_same_acceptance(engines)
    assert len({r.num_accepted for r in decode_rows(engines[1])}) > 2
    assert {(r.kind, r.graph) for r in engines[1].log.rows} == {("decode", modes[0]), ("mixed", modes[3])}


@pytest.mark.gpu
@pytest.mark.parametrize("graph", ["full", "full_and_piecewise"])
def test_c33_mixed_steps_of_many_sizes_and_beyond_the_largest(monkeypatch, few_words: FewWords, graph):
    """Steps of a few rows, of hundreds, and of more than were captured: those run eagerly, and their rows say so."""
    monkeypatch.setattr(launcher_module, "most_captured_rows", lambda model: MIN_CAPTURED_ROWS)
    requests = [
        request(i, text_prompt(i, n), max_tokens=30) for i, n in enumerate((1, 700, 5, 33, 64, 250, 2, 17, 600, 8))
    ]
    plan = Plan("cuda", graph)
    target = few_words.target("cuda")
    sizes = dict(max_model_len=800, page_size=16)
    alone = make_engine(Plan("cuda"), target=target, max_num_seqs=1, max_num_batched_tokens=800, **sizes)
    oracle = {r.id: generate(alone, [replace(r, output_ids=[])])[r.id].output_ids for r in requests}
    engine = few_words.engine(plan, 2, max_num_seqs=3, max_num_batched_tokens=750, **sizes)
    assert_as_oracle(engine, generate(engine, requests), oracle)
    mixed = {(r.graph, r.num_rows > MIN_CAPTURED_ROWS) for r in engine.log.rows if r.kind == "mixed"}
    assert mixed == {("none", True), (PLANS[graph].mixed, False)}


@pytest.mark.gpu
def test_c30_each_phase_group_has_graphs_of_its_own():
    engine = make_engine(Plan("cuda", "full_decode_only"), named_strategy("eagle", k=3, head="random"))
    first, second = (engine.launcher.round_for(n, SamplingMode.GREEDY) for n in (1, 2))
    assert isinstance(first, DecodeRound) and first is not second
    assert [(launch.segment.name, launch.segment.is_captured) for launch in first._launches] == [
        ("target", True), ("first", True), ("later", True),
    ]  # fmt: skip
    graphs = [launch._graph for decode_round in (first, second) for launch in decode_round._launches]
    assert len(set(map(id, graphs))) == 6
    assert first.batch.num_rows == 4 and second.batch.num_rows == 8
    assert first is not engine.launcher.round_for(1, SamplingMode.SAMPLED), "another sampler is another graph"


@pytest.mark.gpu
@pytest.mark.parametrize("order", ["ascending", "descending", "in use"])
def test_c32_the_order_of_captures_does_not_matter(graph_plan: Plan, order):
    requests = _requests()
    oracle = continuations(graph_plan, requests)
    engine = make_engine(graph_plan, named_strategy("eagle", k=3, head="random"), max_num_seqs=7)
    if order == "descending":
        engine.launcher.capture(list(SamplingMode))
    elif order == "ascending":
        for size in (1, 2, 4, 7):
            for mode in SamplingMode:
                engine.launcher.round_for(size, mode)
        if engine.launcher.plan.mixed == "full":
            for size in engine.launcher._mixed_sizes[:4]:
                engine.launcher._mixed_graph(size, SamplingMode.FILTERED, 3)
    assert_as_oracle(engine, generate(engine, requests), oracle)


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", ["no-spec", "eagle", "naive-eagle", "ngram", "parallel-eagle"])
@pytest.mark.parametrize("lag", [1, 2, 4])
def test_c54_the_one_graph_loop_never_synchronises(strategy, lag):
    """torch raises at any blocking call in a round of sync=none; only waiting for an older round's event is allowed."""
    requests = [request(i, text_prompt(i, 6 + i), max_tokens=120, temperature=0.5 * (i % 2), seed=i) for i in range(3)]
    oracle = continuations(Plan("cuda"), requests)
    engine = make_engine(late("cuda", "one", lag), _strategies(requests, oracle)[strategy], page_size=16)
    for r in requests:
        engine.add(r)
    finished = {}
    for _ in range(3 + lag):  # prompts, and the first capture
        finished |= {r.id: r for r in engine.step()}
    assert engine.scheduler.running and not engine.scheduler.waiting
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(20):
            finished |= {r.id: r for r in engine.step()}
    finally:
        torch.cuda.set_sync_debug_mode("default")
    rows = [r for r in engine.log.rows if r.kind == "decode"]
    assert {r.graph for r in rows} == {"one"} and {r.num_syncs for r in rows} == {0}
    while engine.has_work:
        finished |= {r.id: r for r in engine.step()}
    assert_as_oracle(engine, finished, oracle)


@pytest.mark.gpu
def test_c54_the_audit_sees_a_synchronisation():
    torch.cuda.set_sync_debug_mode("error")
    try:
        with pytest.raises(RuntimeError, match="synchroniz"):
            torch.zeros(1, device="cuda").item()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_garbage_in_the_output_buffers_does_not_survive_a_replay(graph_plan: Plan):
    requests = _requests()
    oracle = continuations(graph_plan, requests)
    engine = make_engine(graph_plan, named_strategy("eagle", k=3, head="random"), max_num_seqs=7)

    def poison(engine) -> None:
        for captured in engine.launcher.rounds():
            for tensor in (
                captured.batch.outcome.status_BX,
                captured.batch.rows.ids_T,
                captured.batch.outcome.sample_row_B,
            ):
                tensor.fill_(-7)

    assert_as_oracle(engine, generate(engine, requests, after_step=poison), oracle)


def test_a_cpu_runs_without_graphs():
    engine = make_engine(CPU_PLANS[0], named_strategy("eagle", k=2, head="random"))
    generate(engine, [request(0, text_prompt(0, 5), max_tokens=5)])
    assert {r.graph for r in engine.log.rows} == {"none"}
    assert {name for _, name, _ in engine.phase_log} == {"advance", "verify", "accept", "draft_first", "draft_next"}
    assert all(ns >= 0 for _, _, ns in engine.phase_log)
