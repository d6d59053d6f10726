"""Conformance 56, 69: reading the status several rounds late changes no output; two depths live in one process."""

from __future__ import annotations

import pytest
from toy.engines import decode_rows, drive, generate, make_engine, named_strategy, outputs, request
from toy.oracle import assert_as_oracle, continuations
from toy.plans import CPU, Plan
from toy.prompts import text_prompt
from toy.scripted import PATTERNS, Script, Scripted

from specbench.harness.engines.native.core.engine import Engine

LAGS = [1, 2, 4, 16]


def _lagged(plan: Plan, lag: int) -> Plan:
    return Plan(plan.device, plan.graph, "none" if lag else "single", lag)


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("pattern", ["perfect", "cycling", "adversarial"])
def test_c56_late_reads_give_the_same_outputs(main_plan, lag, pattern):
    requests = [
        request(i, text_prompt(i, 4 + i), max_tokens=5 + 4 * i, temperature=0.7 * (i % 2), seed=i) for i in range(6)
    ]
    oracle = continuations(main_plan, requests)
    stops = {i: (oracle[i][3 * i % 7],) for i in (1, 4)}
    requests = [
        request(i, r.prompt_ids, max_tokens=r.sampling.max_tokens, temperature=r.sampling.temperature, seed=i,
                stop_token_ids=stops.get(i, ()))
        for i, r in enumerate(requests)
    ]  # fmt: skip
    engine = make_engine(_lagged(main_plan, lag), Scripted(3, Script.of(requests, oracle, PATTERNS[pattern](3))))
    inflight = []
    finished = generate(engine, requests, after_step=lambda e: inflight.append(len(e.readback)))
    assert_as_oracle(engine, finished, oracle)
    assert 0 < max(inflight) <= lag


@pytest.mark.parametrize("lag", LAGS)
def test_c56_a_finished_request_is_frozen_and_overshoots_by_at_most_the_lag(main_plan, lag):
    """Rounds launched after the one that ended a request commit nothing for it."""
    requests = [request(i, text_prompt(i, 8), max_tokens=30 if i else 60) for i in range(3)]
    oracle = continuations(main_plan, requests)
    requests = [
        request(i, r.prompt_ids, max_tokens=r.sampling.max_tokens, stop_token_ids=(oracle[i][9 + i],) if i else ())
        for i, r in enumerate(requests)
    ]
    engine = make_engine(_lagged(main_plan, lag), Scripted(2, Script.of(requests, oracle, PATTERNS["cycling"](2))))
    launched: dict[int, int] = {}

    def count(engine: Engine) -> None:
        for r in engine.scheduler.running:
            launched[r.id] = max(launched.get(r.id, 0), r.num_inflight)

    finished = generate(engine, requests, after_step=count)
    assert_as_oracle(engine, finished, oracle)
    assert max(launched.values()) <= lag
    for number in (1, 2):
        rows = decode_rows(engine, number)
        assert all(r.num_emitted > 0 for r in rows), "a frozen round was logged as work"


def test_c56_the_lag_falls_to_one_while_requests_wait(main_plan):
    engine = make_engine(_lagged(main_plan, 4), named_strategy("ngram", k=2), max_num_seqs=1)
    for i in range(2):
        engine.add(request(i, text_prompt(i, 5), max_tokens=30))
    while True:
        engine.step()
        if not engine.scheduler.waiting:  # the step that admits the last one may leave more in flight
            break
        assert len(engine.readback) <= 1
    most = 0
    while engine.has_work:
        engine.step()
        most = max(most, len(engine.readback))
    assert most == 4


@pytest.mark.parametrize("lag", [0, *LAGS])
def test_c54_syncs_are_counted_as_declared(main_plan, lag):
    """One wait a round when reading at once; none in the steady state of late reading."""
    engine = make_engine(_lagged(main_plan, lag), named_strategy("ngram", k=2, min_n=1))
    generate(engine, [request(i, text_prompt(i, 9), max_tokens=60) for i in range(2)])
    steps = {r.step: r.num_syncs for r in engine.log.rows if r.kind == "decode"}
    waits = [steps[s] for s in sorted(steps)]
    if lag == 0:
        assert set(waits) == {1}
    else:
        assert sum(waits) <= 1, "only the last round, with nothing behind it, may be waited for"


def test_c56_pages_reserved_ahead_cover_every_round_in_flight(plan):
    """With perfect drafts every round in flight moves by K+1: none may write outside its request's pages."""
    requests = [request(i, text_prompt(i, 6), max_tokens=60) for i in range(3)]
    oracle = continuations(plan, requests)
    engine = make_engine(plan, Scripted(4, Script.of(requests, oracle, PATTERNS["perfect"](4))), page_size=1)

    def look(engine: Engine) -> None:
        reach = engine.state.n_S.tolist()
        for r in engine.scheduler.running:
            most = r.limit(engine.config.max_model_len)
            assert len(r.pages) >= min(reach[r.slot] + 1, most), "committed beyond the pages"

    assert_as_oracle(engine, generate(engine, requests, after_step=look), oracle)


def test_c69_two_depths_in_one_process(plan):
    requests = [request(i, text_prompt(i, 7 + i), max_tokens=24) for i in range(3)]
    oracle = continuations(plan, requests)
    engines = [make_engine(plan, named_strategy("eagle", k=k, head="random")) for k in (2, 5)]
    for engine in engines:
        for r in requests:
            engine.add(request(r.id, r.prompt_ids, max_tokens=24))
    finished: list[dict] = [{}, {}]
    while any(e.has_work for e in engines):  # their rounds alternate
        for found, engine in zip(finished, engines, strict=True):
            if engine.has_work:
                found.update({r.id: r for r in engine.step()})
    for k, found, engine in zip((2, 5), finished, engines, strict=True):
        assert_as_oracle(engine, found, oracle, f"k={k}")
        assert {r.num_proposed for r in decode_rows(engine)} == {k}


def test_one_engine_serves_block_after_block(plan):
    """Nothing of an earlier block shows in a later one."""
    engine = make_engine(plan, named_strategy("eagle", k=2, head="random"))
    blocks = []
    for _ in range(3):
        blocks.append(outputs(generate(engine, [request(i, text_prompt(i, 5 + i), max_tokens=9) for i in range(6)])))
        engine.log.take()
    assert blocks[0] == blocks[1] == blocks[2]


def test_times_of_requests_are_in_order():
    engine = make_engine(CPU, named_strategy("ngram", k=2))
    for done in generate(engine, [request(i, text_prompt(i, 9), max_tokens=6) for i in range(6)]).values():
        assert 0 < done.t_submit_ns < done.t_first_ns <= done.t_last_ns
        assert done.t_first_device_ns <= done.t_first_ns and done.t_last_device_ns <= done.t_last_ns
    assert all(row.t_start_ns < row.t_device_ns < row.t_host_ns for row in engine.log.rows)
    assert not drive(engine)
