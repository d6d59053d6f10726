"""Conformance 33, 52: a first drafter pass over the accepted rows alone drafts what the padded one drafts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from toy.engines import assert_idle, assert_same_acceptance, decode_rows, drive, generate, pad_rounds, request
from toy.few_words import FewWords
from toy.oracle import assert_as_oracle
from toy.plans import CPU, Plan, params
from toy.prompts import text_prompt

from specbench.harness.engines.native.core.clock import NullClock
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import FinishReason
from specbench.harness.engines.native.core.sampler import SamplingMode
from specbench.harness.engines.native.core.upload import send_together
from specbench.harness.engines.ranges import NullRanges

PLANS = [
    CPU,
    Plan("cpu", sync="multi"),
    Plan("cuda"),
    Plan("cuda", sync="multi"),
    Plan("cuda", "piecewise"),
    Plan("cuda", "full_decode_only", parts=(("first", "piecewise"),)),
    Plan("cuda", "full_and_piecewise", parts=(("first", "none"),)),
    Plan("cuda", "full_and_piecewise", "multi", parts=(("first", "piecewise"),)),
]


def _requests(num: int = 7) -> list:
    return [
        request(i, text_prompt(i, 3 + 7 * i % 31), max_tokens=16 + i, temperature=0.7 * (i % 2), seed=i)
        for i in range(num)
    ]


def _run(engine: Engine, requests: list) -> tuple[dict, list]:
    """Finished requests, and what each decoding request was offered after each step."""
    drafts = []

    def look(engine: Engine) -> None:
        table = engine.state.drafts_SK.tolist()
        drafts.append({r.id: table[r.slot] for r in engine.scheduler.running if not r.is_prefilling})

    return generate(engine, [replace(r, output_ids=[]) for r in requests], after_step=look), drafts


def _assert_row_counts(engine: Engine, k: int) -> None:
    """Unpadded: the accepted rows of decodes and all rows of prompt chunks."""
    steps: dict[int, list] = {}
    for row in engine.log.rows:
        steps.setdefault(row.step, []).append(row)
    for rows in steps.values():
        decodes = [r for r in rows if not r.is_prefill]
        chunk_rows = rows[0].num_rows - len(decodes) * (k + 1)
        assert rows[0].num_draft_rows == chunk_rows + sum(r.num_accepted + 1 for r in decodes)


@pytest.mark.parametrize("plan", params(PLANS))
@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("budget", [1, 24])
def test_c52_unpadded_drafts_and_accepts_as_padded(plan, few_words: FewWords, k, budget):
    """A budget of 1 makes steps of [K+1, .., 1] rows: decodes beside a chunk of one token."""
    requests = _requests()
    oracle = few_words.continuations(plan, requests)
    runs, engines = [], []
    for drafter in ("padded", "unpadded"):
        engine = few_words.engine(replace(plan, drafter=drafter), k, max_num_batched_tokens=budget)
        finished, drafts = _run(engine, requests)
        assert_as_oracle(engine, finished, oracle, drafter)
        runs.append(drafts)
        engines.append(engine)
    assert runs[0] == runs[1], "other drafts"
    assert_same_acceptance(engines)
    _assert_row_counts(engines[1], k)
    for row in engines[0].log.rows:
        assert row.num_draft_rows == row.num_padded_rows, "padded: every row of the target's pass"
    kinds = {(r.kind, r.is_prefill) for r in engines[1].log.rows}
    assert {("decode", False), ("mixed", True), ("mixed", False)} <= kinds
    assert len({r.num_accepted for r in decode_rows(engines[1])}) > min(k, 2)


@pytest.mark.parametrize("plan", params(PLANS))
def test_c52_padded_rounds_leave_their_padding_out(plan, few_words: FewWords):
    """A round padded to a captured size drafts for its real requests only."""
    requests = _requests(5)
    oracle = few_words.continuations(plan, requests)
    engine = few_words.engine(replace(plan, drafter="unpadded"), 3, max_num_seqs=5)
    if not plan.pads:
        pad_rounds(engine, [4, 8])
    assert_as_oracle(engine, generate(engine, requests), oracle)
    _assert_row_counts(engine, 3)
    assert any(r.num_padded_rows > r.num_rows for r in engine.log.rows)


@pytest.mark.parametrize("size", [1, 5])
def test_graphs_are_made_for_as_many_rows_as_a_round_may_bring(few_words: FewWords, size):
    """All rows of a layout that nobody is in: else a set of graphs would be captured in a measured block."""
    engine = few_words.engine(Plan("cpu", drafter="unpadded"), 3, max_num_seqs=5)
    decode_round = engine.launcher.round_for(size, SamplingMode.GREEDY)
    decode_round.launch(NullRanges(), NullClock(), engine.views.of(decode_round.batch, []))
    assert decode_round.batch.work.num_draft_rows == size * 4


@pytest.mark.parametrize("num", [1, 2, 3, 5])
def test_uploads_in_one_copy_keep_their_values_and_alignment(num):
    arrays = tuple(np.arange(length) + 10 * length for length in (num, num + 1, 2 * num, 0))
    for dtype in (torch.int32, torch.int64):
        sent = send_together(arrays, dtype, torch.device("cpu"))
        assert [x.tolist() for x in sent] == [a.tolist() for a in arrays] and {x.dtype for x in sent} == {dtype}
        assert all((x.data_ptr() - sent[0].data_ptr()) % 16 == 0 for x in sent[:-1])


@pytest.mark.parametrize("plan", params(PLANS))
def test_c52_requests_that_stop_or_are_aborted_leave_the_others_alone(plan, few_words: FewWords):
    requests = _requests(6)
    oracle = few_words.continuations(plan, requests)
    requests = [
        request(r.id, r.prompt_ids, max_tokens=r.sampling.max_tokens, temperature=r.sampling.temperature, seed=r.id,
                stop_token_ids=(oracle[r.id][6],) if r.id in (1, 4) else ())
        for r in requests
    ]  # fmt: skip
    engine = few_words.engine(replace(plan, drafter="unpadded"), 4)
    for r in requests:
        engine.add(r)
    finished = {}
    for step in range(8):
        if step in (3, 6):
            engine.abort(2 if step == 3 else 5)
        finished |= {r.id: r for r in engine.step()}
    finished |= drive(engine)
    assert_idle(engine)
    aborted = [number for number, done in finished.items() if done.finish_reason is FinishReason.ABORT]
    assert aborted and all(finished[n].output_ids == oracle[n][: len(finished[n].output_ids)] for n in aborted)
    assert_as_oracle(engine, {n: done for n, done in finished.items() if n not in aborted}, oracle)
    assert {finished[n].finish_reason for n in (1, 4)} == {FinishReason.STOP}
