"""Bugs that graph capture gave other engines, each as a test: the number is its place in the project's list of them.

Most need no GPU: layouts, their padding and the metadata of each pass are the same whether they are captured or not.
"""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from toy.backends import CheckedPlans, WithoutPadding
from toy.engines import (
    assert_same_acceptance,
    decode_rows,
    drive,
    fill_mixed_steps,
    generate,
    make_engine,
    named_strategy,
    pad_rounds,
    request,
)
from toy.few_words import FewWords
from toy.oracle import assert_as_oracle, continuations
from toy.plans import CPU, CPU_PLANS, Plan, late, params
from toy.prompts import text_prompt
from toy.scripted import PATTERNS, Script, Scripted

from specbench.harness.engines.native.core.clock import NullClock
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.graph_sizes import capture_sizes
from specbench.harness.engines.native.core.graphs import split_round
from specbench.harness.engines.native.core.layouts import MixedEntry, MixedLayout, decode_batch, mixed_batch
from specbench.harness.engines.native.core.lookahead import Lookahead
from specbench.harness.engines.native.core.sampler import SamplingMode
from specbench.harness.engines.native.core.state import RoundState
from specbench.harness.engines.native.core.strategy import Phase
from specbench.harness.engines.ranges import NullRanges
from specbench.harness.spec.plans import PLANS


def _state(k: int = 2, max_num_seqs: int = 4) -> RoundState:
    return RoundState(
        max_num_seqs=max_num_seqs, max_model_len=64, num_drafts=k, page_size=4, device=torch.device("cpu"),
        lookahead=Lookahead.of(k, None),
    )  # fmt: skip


def _requests(num: int, max_tokens: int = 16) -> list:
    return [
        request(i, text_prompt(i, 3 + 4 * i), max_tokens=max_tokens + i, temperature=0.7 * (i % 2), seed=i)
        for i in range(num)
    ]


@pytest.mark.parametrize("k", range(1, 9))
def test_b01_padded_rows_are_a_multiple_of_the_rows_of_a_request(main_plan, k):
    """vLLM issue 28207: K=2 with sizes 1, 2, 4, 8 counted in tokens met batches that were no multiple of 3."""
    for size in capture_sizes(17):
        batch = decode_batch(_state(k, 17), size)
        assert batch.num_rows == size * (k + 1) and batch.cu_q_B1[-1] == batch.num_rows
    requests = _requests(3)
    oracle = continuations(main_plan, requests)
    engine = make_engine(main_plan, Scripted(k, Script.of(requests, oracle, PATTERNS["cycling"](k))), max_num_seqs=3)
    if not main_plan.pads:
        pad_rounds(engine, [1, 2, 4, 8])
    assert_as_oracle(engine, generate(engine, requests), oracle)
    assert all(r.num_padded_rows % (k + 1) == 0 for r in engine.log.rows if r.kind == "decode")


def test_b02_the_widest_batch_has_a_size_of_its_own_and_no_size_is_wider():
    """vLLM PR 50488, 54418, 37865: a limit in tokens left the widest batches eager, or captured far too much."""
    for most in range(1, 600):
        assert max(capture_sizes(most)) == most
    assert capture_sizes(42)[-3:] == [32, 40, 42]


def test_b03_lanes_beyond_the_real_requests_index_the_dummy_slot():
    """vLLM PR 23679: kernels launched for the padded count read per-request arrays of the real length."""
    engine = make_engine(CPU, named_strategy("eagle", k=3, head="random"))
    pad_rounds(engine, [8])
    generate(engine, _requests(3))
    batch = engine.launcher.round_for(3, SamplingMode.FILTERED).batch
    for buffers in (batch, batch.rows, batch.outcome, batch.next_rows):
        for item in fields(buffers):
            value = getattr(buffers, item.name)
            if isinstance(value, torch.Tensor) and "_B" in item.name:
                assert value.shape[0] == 8 + item.name.endswith("_B1"), f"{item.name} ends at the real requests"
    assert batch.rows.num_drafts_B.tolist() == [3] * 8


def test_b04_padding_lanes_have_harmless_values():
    """Row starts never fall, lengths are at least the rows, positions begin at 0, all writes stay in the dummy page."""
    engine = make_engine(CPU, named_strategy("eagle", k=2, head="random"), page_size=4)
    pad_rounds(engine, [8])
    for r in _requests(2, max_tokens=30):
        engine.add(r)
    for _ in range(6):
        engine.step()
    batch = next(iter(engine.launcher.rounds())).batch
    real = len(engine.scheduler.running)
    assert batch.num_requests == 8 and real == 2
    assert (batch.cu_q_B1.diff() == 3).all()
    assert (batch.rows.kv_len_B[real:] >= 3).all()
    assert (batch.rows.block_table_BP[real:] == 0).all()
    assert batch.rows.position_T.view(8, 3)[real:].tolist() == [[0, 1, 2]] * 6
    assert (batch.rows.kv_slot_T.view(8, 3)[real:] < engine.config.page_size).all()
    assert (batch.next_rows.kv_slot_T[real:] < engine.config.page_size).all()


def test_b05_row_starts_and_slots_are_rewritten_in_place():
    """vLLM PR 23679: `query_start_loc = arange[:B+1]` replaced the tensor that the graph read."""
    engine = make_engine(CPU, named_strategy("eagle", k=2, head="random"))
    pad_rounds(engine, [4])
    for r in _requests(4):
        engine.add(r)
    seen: set[tuple[int, ...]] = set()

    def look(engine: Engine) -> None:
        for decode_round in engine.launcher.rounds():
            batch = decode_round.batch
            metas = [f.parts[0].meta for f in (batch.target_forward(), batch.drafter_forward())]
            metas.append(batch.draft_step_forward(2).parts[0].meta)
            seen.add(tuple(t.data_ptr() for m in metas for t in (m.cu_q_B1, m.kv_len_B, m.block_table_BP)))

    sizes = set()
    drive(engine, after_step=lambda e: (look(e), sizes.add(len(e.scheduler.running))))
    assert len(sizes) > 3 and len(seen) == len(engine.launcher.rounds())


def test_b06_each_pass_has_metadata_of_its_own():
    """vLLM PR 23679, 41162: metadata of K+1 rows was still in place when the one-row passes ran."""
    batch = decode_batch(_state(), 3)
    target, first, later = (
        f.parts[0].meta for f in (batch.target_forward(), batch.drafter_forward(), batch.draft_step_forward(2))
    )
    assert target is not first and first is not later
    assert batch.draft_step_forward(3).parts[0].meta is not later
    assert (first.max_q, later.max_q) == (3, 1) and later.cu_q_B1.tolist() == [0, 1, 2, 3]
    assert later.kv_len_B.data_ptr() != first.kv_len_B.data_ptr()


@pytest.mark.parametrize("name", [name for name, plan in PLANS.items() if plan.target != "one"])
def test_b07_rounds_of_other_row_counts_are_other_graphs(name):
    """vLLM PR 23679: a graph of B * (K+1) rows was replayed for B rows."""
    phases = [Phase(n, lambda b: None) for n in ("verify", "accept", "draft_first", "draft_next")]
    for segment in split_round(PLANS[name], phases):
        assert len({"draft_next" == p.name for p in segment.phases}) == 1
    engine = make_engine(CPU, named_strategy("eagle", k=2, head="random"))
    assert len({id(engine.launcher.round_for(n, mode).batch) for n in (1, 2, 3) for mode in SamplingMode}) == 9


def test_b08_a_capture_between_rounds_leaves_nothing_behind(main_plan, few_words: FewWords):
    """vLLM PR 48261, 47596: dummy runs left row counts and last-row indices in buffers that real rounds read."""
    requests = _requests(4)
    oracle = few_words.continuations(main_plan, requests)
    engine = few_words.engine(main_plan, 3, max_num_seqs=6)

    def dummy_round(engine: Engine) -> None:
        if engine.readback:
            return  # a late round's status is still to be copied
        for size in (6, 1, 4):
            decode_round = engine.launcher.round_for(size, SamplingMode.GREEDY)
            decode_round.assign((), engine.state)
            decode_round.launch(NullRanges(), NullClock(), engine.views.of(decode_round.batch, []))

    assert_as_oracle(engine, generate(engine, requests, after_step=dummy_round), oracle)


def test_b09_the_longest_query_is_taken_slice_by_slice():
    """vLLM PR 34880: of a batch of [2, 1] rows the slice of single rows was launched with 2."""
    entries = [MixedEntry(0, 2, False, False, 9), MixedEntry(1, 1, True, False, 1)]
    state = _state(k=1)
    decodes, chunks = (part.meta for part in mixed_batch(state, MixedLayout.of(state, entries)).target_forward().parts)
    assert (decodes.max_q, chunks.max_q) == (2, 1)
    assert (decodes.is_uniform, chunks.is_uniform) == (True, False)


def test_b10_decodes_are_counted_apart_from_their_rows():
    """vLLM PR 34880: rows were split at the number of decodes, which bring K+1 rows each."""
    entries = [MixedEntry(0, 3, False, False, 9), MixedEntry(1, 3, False, False, 7), MixedEntry(2, 5, True, True, 5)]
    state = _state()
    batch = mixed_batch(state, MixedLayout.of(state, entries))
    assert [(p.first_row, p.num_rows) for p in batch.target_forward().parts] == [(0, 6), (6, 5)]
    assert batch.target_forward().parts[1].meta.cu_q_B1.tolist() == [0, 5]
    assert batch.rows.base_row_B.tolist() == [0, 3, 10]


_UNPADDED = [
    Plan("cpu", drafter="unpadded"),
    Plan("cuda", "piecewise", drafter="unpadded"),
    Plan("cuda", "full_and_piecewise", drafter="unpadded", parts=(("first", "piecewise"),)),
]


@pytest.mark.parametrize("plan", params(_UNPADDED))
def test_b11_unpadded_drafting_beside_graphs_at_high_concurrency(plan, few_words: FewWords):
    """vLLM PR 34880 names it as a known crash."""
    requests = [request(i, text_prompt(i, 2 + 3 * i % 29), max_tokens=12 + i % 7, seed=i) for i in range(40)]
    oracle = few_words.continuations(plan, requests)
    engine = few_words.engine(plan, 3, max_num_seqs=33, max_num_batched_tokens=256)
    assert_as_oracle(engine, generate(engine, requests), oracle)
    assert max(r.batch_size for r in decode_rows(engine)) == 33


_LATE = [p for p in CPU_PLANS if p.status_lag] + [
    late("cuda", graph, 2) for graph in ("none", "piecewise", "full_and_piecewise", "full", "one")
]


@pytest.mark.parametrize("plan", params(_LATE))
def test_b12_what_the_host_reads_late_is_not_what_the_next_round_writes(plan, few_words: FewWords):
    """vLLM PR 53520: output buffers of a graph were reused before the host had copied them."""
    requests = _requests(4)
    oracle = few_words.continuations(plan, requests)
    engine = few_words.engine(plan, 3)

    def overwrite(engine: Engine) -> None:
        for decode_round in engine.launcher.rounds():
            decode_round.batch.outcome.status_BX.fill_(-5)

    assert_as_oracle(engine, generate(engine, requests, after_step=overwrite), oracle)


@pytest.mark.parametrize("sync", ["single", "multi"])
@pytest.mark.parametrize("drafter", ["padded", "unpadded"])
@pytest.mark.parametrize("sizes", [[], [2, 4]])
def test_b13_every_launch_is_planned_with_the_lengths_of_its_own_rows(few_words: FewWords, sync, drafter, sizes):
    """Wrappers cached by batch size alone were shared by passes of other row counts and planned for those."""
    backend = CheckedPlans()
    requests = _requests(5)
    oracle = few_words.continuations(CPU, requests)
    engine = few_words.engine(Plan("cpu", sync=sync, drafter=drafter), 3, backend=backend)
    if sizes:
        pad_rounds(engine, sizes)
    assert_as_oracle(engine, generate(engine, requests), oracle)
    assert backend.num_forwards > 100
    assert {(2, 8), (2, 2)} <= backend.shapes, "two requests with K+1 rows each, and with one row each"


def test_b14_every_chain_step_writes_its_keys(few_words: FewWords):
    """A pass without slots wrote no keys: drafts were merely worse and nothing failed."""
    k = 4
    engine = few_words.engine(Plan("cpu", drafter="unpadded"), k, page_size=64)
    engine.add(request(0, text_prompt(0, 9), max_tokens=60))
    engine.step()  # the prompt
    (running,) = engine.scheduler.running
    keys_NHD = engine.drafter._cache.k[running.pages[0]]  # type: ignore[union-attr]
    for _ in range(8):
        keys_NHD[int(engine.state.n_S[running.slot]) :] = float("nan")
        engine.step()
        # Up to n by the first pass, which has no rejected rows here, and K-1 more by the later ones.
        n = int(engine.state.n_S[running.slot])
        assert not keys_NHD[: n + k - 1].isnan().any()


def test_b15_requests_without_rows_are_padding(few_words: FewWords):
    """Padding requests of length 0 must neither count as prompts nor move what stands before them."""
    backend = WithoutPadding()
    requests = _requests(6)
    oracle = few_words.continuations(CPU, requests)
    engine = few_words.engine(CPU, 3, backend=backend)
    fill_mixed_steps(engine, 64)
    finished = generate(engine, requests)
    assert_as_oracle(engine, finished, oracle)
    plain = few_words.engine(CPU, 3)
    generate(plain, _requests(6))
    assert_same_acceptance([plain, engine])
    assert backend.num_padded and {r.num_padded_rows for r in engine.log.rows if r.kind == "mixed"} == {64}


@pytest.mark.parametrize("k", [3, 8])
def test_b16_drafting_beyond_the_longest_request_stays_in_its_pages(main_plan, few_words: FewWords, k):
    """Positions past max_model_len indexed past the block table and the rotary table."""
    longest = 40
    requests = [request(i, text_prompt(i, 30 + 3 * i), max_tokens=100) for i in range(3)]
    oracle = {r.id: few_words.continuations(main_plan, [r])[r.id] for r in requests}
    engine = few_words.engine(main_plan, k, max_model_len=longest, page_size=4)
    table = engine.state.block_table_SP.shape[1] * 4

    def look(engine: Engine) -> None:
        for decode_round in engine.launcher.rounds():
            batch = decode_round.batch
            rows = batch.next_rows
            assert int(rows.position_T.max()) < table and int(rows.kv_len_B.max()) <= engine.state.max_kv

    assert_as_oracle(engine, generate(engine, requests, after_step=look), oracle)


def test_b17_every_plan_accepts_what_the_eager_engine_accepts(plan, few_words: FewWords):
    """vLLM issue 54997: an op that failed under capture only, seen as an acceptance of nothing."""
    requests = _requests(6)
    engines = []
    for each in (Plan(plan.device), plan):
        engine = few_words.engine(each, 3)
        generate(engine, [replace(r, output_ids=[]) for r in requests])
        engines.append(engine)
    assert_same_acceptance(engines)
    assert sum(r.num_accepted for r in decode_rows(engines[1])) > 20


@pytest.mark.gpu
@pytest.mark.parametrize("graph", ["full_and_piecewise", "full", "one"])
def test_b18_copies_from_the_host_are_there_before_a_replay(few_words: FewWords, graph):
    """A copy on another stream was not waited for: with the device kept busy it would come too late."""
    plan = late("cuda", graph, 2)
    requests = _requests(9)
    oracle = few_words.continuations(plan, requests)
    engine = few_words.engine(plan, 3)
    finished = generate(engine, requests, after_step=lambda e: torch.cuda._sleep(2_000_000))
    assert_as_oracle(engine, finished, oracle)
