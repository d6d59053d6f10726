"""Faults that need a captured round padded to its size: three requests in a graph for four.

On a CPU the same code runs over the same padded layout, launched kernel by kernel.
"""

from __future__ import annotations

import pytest
from harness.quality.fault_rig import (
    CHAIN,
    TEMPERATURE,
    failed_checks,
    few_words,
    judged,
    requests_of,
    said,
    spec_engine,
)
from harness.quality.faults import late_metadata, padding_rows_share_a_page
from toy.engines import pad_rounds
from toy.few_words import FewWords
from toy.plans import CPU, Plan, late, params

from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.quality.certificate.certify import Certificate, Generated

PLANS = [CPU, Plan("cuda", "full"), Plan("cuda", "full_decode_only"), late("cuda", "one", 1)]
NUM_REQUESTS, SIZE = 3, 4


@pytest.fixture(params=params(PLANS))
def padded_plan(request: pytest.FixtureRequest) -> Plan:
    return request.param


@pytest.fixture
def few(tmp_path) -> FewWords:
    return few_words(tmp_path)


def _padded(few: FewWords, plan: Plan) -> Engine:
    engine = spec_engine(few, CHAIN, plan, max_num_seqs=SIZE)
    if plan.device == "cpu":
        pad_rounds(engine, [SIZE])
    return engine


def _plain(few: FewWords, plan: Plan, temperature: float) -> tuple[str, Generated]:
    engine = spec_engine(few, CHAIN, Plan(plan.device), max_num_seqs=SIZE)
    return "plain", said(engine, requests_of(temperature, num=NUM_REQUESTS))


def _certificate(few: FewWords, engine: Engine, plan: Plan, temperature: float = 0.0) -> Certificate:
    plain = _plain(few, plan, temperature)
    return judged(few, engine, requests_of(temperature, num=NUM_REQUESTS), plain, plan=plan)


def _assert_padded(engine: Engine, plan: Plan) -> None:
    """Whether the rounds ran as this file's tests are about: as graphs, with a padding row in every one of three."""
    sizes = {r.batch.num_requests for r in engine.launcher.rounds()}
    assert SIZE in sizes and NUM_REQUESTS not in sizes
    if plan.device == "cuda":
        launches = [launch for r in engine.launcher.rounds() for launch in r._launches]
        assert all(launch.segment.is_captured for launch in launches)


@pytest.mark.parametrize("temperature", [0.0, TEMPERATURE])
def test_a_padded_round_without_faults_passes(few, padded_plan, temperature):
    engine = _padded(few, padded_plan)
    certificate = _certificate(few, engine, padded_plan, temperature)
    assert certificate.problems == () and certificate.num_exact == NUM_REQUESTS
    rounds = certificate.acceptance
    assert rounds.num_rounds > 20 and rounds.num_flipped == rounds.num_unmatched == 0
    _assert_padded(engine, padded_plan)


@pytest.mark.parametrize("temperature", [0.0, TEMPERATURE])
def test_stale_metadata_under_a_graph_shows_in_the_outputs(few, padded_plan, temperature):
    engine = _padded(few, padded_plan)
    late_metadata(engine)  # before the first round, so that the copies are captured too
    certificate = _certificate(few, engine, padded_plan, temperature)
    assert {"divergence", "regret"} <= failed_checks(certificate) <= {"divergence", "regret", "acceptance"}
    _assert_padded(engine, padded_plan)


def test_padding_rows_that_overwrite_a_drafters_keys_show_in_the_acceptance_alone(few, padded_plan):
    engine = _padded(few, padded_plan)
    padding_rows_share_a_page(engine)
    certificate = _certificate(few, engine, padded_plan)
    assert failed_checks(certificate) == {"acceptance"}
    assert certificate.num_exact == NUM_REQUESTS, "verification corrects what the drafter says"
    _assert_padded(engine, padded_plan)
