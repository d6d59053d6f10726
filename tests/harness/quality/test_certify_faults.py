"""Planted faults are caught, and the engine without them passes every check. Which check catches which fault stands in
benchmarks/results/planted-faults.md (fault_table.py).

Faults of a drafter leave every output right, and two arms that share them agree: here the acceptance check compares
with a dense head of its own, not with a plain arm.
"""

from __future__ import annotations

import pytest
from harness.quality.fault_rig import (
    CHAIN,
    TEMPERATURE,
    TREE,
    dense_reference,
    distribution_of,
    failed_checks,
    few_words,
    judged,
    requests_of,
    spec_engine,
)
from harness.quality.faults import bias_sampler, drafts_not_verified, no_compaction, rejected_keys_read, stale_length
from toy.few_words import FewWords


@pytest.fixture
def few(tmp_path) -> FewWords:
    return few_words(tmp_path)


@pytest.mark.parametrize("temperature", [0.0, TEMPERATURE])
@pytest.mark.parametrize("strategy", [CHAIN, TREE], ids=["chain", "tree"])
def test_an_engine_without_faults_passes(few, strategy, temperature):
    certificate = judged(few, spec_engine(few, strategy), requests_of(temperature))
    assert certificate.problems == ()
    assert certificate.acceptance_length > 1.1, "drafts must be accepted for faults to show"


@pytest.mark.parametrize(
    ("fault", "strategy"),
    [(no_compaction, TREE), (rejected_keys_read, CHAIN), (stale_length, CHAIN), (drafts_not_verified, CHAIN)],
    ids=lambda x: getattr(x, "__name__", x[0] if isinstance(x, tuple) else None),
)
def test_faults_of_the_target_show_in_sampled_outputs(few, fault, strategy):
    engine = spec_engine(few, strategy)
    fault(engine)
    certificate = judged(few, engine, requests_of(TEMPERATURE))
    assert failed_checks(certificate) == {"divergence", "regret"}
    assert certificate.num_exact < certificate.num_prompts and certificate.worst_regret > 100 * certificate.tolerance


def test_the_reference_head_accepts_what_the_engine_accepts(few):
    certificate = judged(few, spec_engine(few), requests_of(), dense_reference(few))
    assert certificate.problems == ()
    rounds = certificate.acceptance
    assert rounds.num_rounds > 60 and rounds.num_flipped == rounds.num_unmatched == 0


def test_the_right_sampler_passes_the_distribution_test(few):
    found = distribution_of(few)
    assert found.ok and found.is_telling


def test_a_biased_sampler_fails_although_every_arm_agrees(few, monkeypatch):
    bias_sampler(monkeypatch)
    certificate = judged(few, spec_engine(few), requests_of(TEMPERATURE), distribution=distribution_of(few))
    assert failed_checks(certificate) == {"regret", "distribution"}
    assert certificate.num_exact == certificate.num_prompts
