"""Every planted fault is caught, by the checks that this table names, and the engine without it passes them all.

| fault                              | divergence | regret | acceptance | distribution |
| ---------------------------------- | ---------- | ------ | ---------- | ------------ |
| tree path not compacted            | x          | x      | -          |              |
| rejected keys read                 | x          | x      | -          |              |
| verification's length too small    | x          | x      | -          |              |
| drafts accepted unverified         | x          | x      | -          |              |
| drafter one position off           |            |        | x          |              |
| wrong d2t                          |            |        | x          |              |
| drafter's KV overwritten           |            |        | x          |              |
| biased sampler, shared by no-spec  |            | x      |            | x            |

-: may fail too, or see too little text before the first divergence. Faults of a drafter leave every output right, and
both arms that share them agree: here the acceptance check compares with a dense head of its own, not with a plain arm.
"""

from __future__ import annotations

import pytest
from harness.accuracy.faults import (
    bias_sampler,
    drafter_position,
    drafts_not_verified,
    no_compaction,
    padding_rows_write,
    reference_rounds,
    rejected_keys_read,
    stale_length,
    wrong_d2t,
)
from safetensors.torch import load_file, save_file
from toy.engines import make_engine, named_strategy, request
from toy.few_words import FewWords
from toy.plans import CPU
from toy.prompts import text_prompt

from specbench.harness.accuracy.certify import Certificate, Generated, Judge, generate
from specbench.harness.accuracy.certify_distribution import DistributionJudge
from specbench.harness.accuracy.certify_tolerance import measure_tolerance
from specbench.harness.engine.engine import Engine

K = 3
NUM_TOKENS = 32
NUM_SEEDS = 400
TEMPERATURE = 3.0  # where this target is not certain of its text
CHAIN = ("eagle", dict(k=K))
TREE = ("eagle-topk", dict(num_steps=3, topk=2, num_draft_tokens=6))
OUTPUT_CHECKS = {"divergence", "regret"}


def _silent(_) -> None:
    pass


@pytest.fixture
def few(tmp_path) -> FewWords:
    """Of its own for every test: some faults change the head. Attention that depends on positions as a trained one."""
    found = FewWords(tmp_path)
    tensors = load_file(found.head / "model.safetensors")
    tensors["midlayer.self_attn.q_proj.weight"] *= 6
    save_file(tensors, found.head / "model.safetensors")
    return found


def _requests(temperature: float = 0.0, num_tokens: int = NUM_TOKENS) -> list:
    return [
        request(i, text_prompt(i + 1, 9 + 3 * i), max_tokens=num_tokens, temperature=temperature, seed=i + 5)
        for i in range(5)
    ]


def _engine(few: FewWords, strategy=CHAIN, **config) -> Engine:
    name, options = strategy
    return make_engine(CPU, named_strategy(name, head=few.head, **options), target=few.target("cpu"), **config)


def _no_spec(few: FewWords, **config) -> Engine:
    return make_engine(CPU, target=few.target("cpu"), **config)


def _certificate(few, engine, temperature=0.0, rounds=None, distribution=None) -> Certificate:
    target = few.target("cpu")
    baseline = generate(_no_spec(few), _requests(temperature), _silent)
    texts = [(r.prompt_ids, baseline.outputs[r.id]) for r in _requests()]
    judge = Judge(target, measure_tolerance(target, target, texts), _requests(temperature))
    got = generate(engine, _requests(temperature), _silent)
    plain = ("the reference head", Generated(baseline.outputs, rounds)) if rounds else None
    return judge.certificate("arm", got, baseline, plain, distribution)


def _reference(few: FewWords):
    longer = generate(_no_spec(few), _requests(num_tokens=NUM_TOKENS + K), _silent)
    return reference_rounds(few, _requests(), longer.outputs, K)


def _failed(certificate: Certificate) -> set[str]:
    assert certificate.ok == (not certificate.problems)
    return {problem.partition(":")[0] for problem in certificate.problems}


@pytest.mark.parametrize("temperature", [0.0, TEMPERATURE])
@pytest.mark.parametrize("strategy", [CHAIN, TREE], ids=["chain", "tree"])
def test_an_engine_without_faults_passes(few, strategy, temperature):
    certificate = _certificate(few, _engine(few, strategy), temperature)
    assert certificate.problems == ()
    assert certificate.acceptance_length > 1.1, "drafts must be accepted for faults to show"


@pytest.mark.parametrize("temperature", [0.0, TEMPERATURE])
@pytest.mark.parametrize(
    ("fault", "strategy"),
    [(no_compaction, TREE), (rejected_keys_read, CHAIN), (stale_length, CHAIN), (drafts_not_verified, CHAIN)],
    ids=lambda x: getattr(x, "__name__", x[0] if isinstance(x, tuple) else None),
)
def test_faults_of_the_target_show_in_the_outputs(few, fault, strategy, temperature):
    engine = _engine(few, strategy)
    fault(engine)
    certificate = _certificate(few, engine, temperature)
    assert _failed(certificate) == OUTPUT_CHECKS
    assert certificate.num_exact < certificate.num_prompts and certificate.worst_regret > 100 * certificate.tolerance


def test_the_reference_head_accepts_what_the_engine_accepts(few):
    certificate = _certificate(few, _engine(few), rounds=_reference(few))
    assert certificate.problems == ()
    assert certificate.acceptance.num_rounds > 60 and certificate.acceptance.num_different == 0


@pytest.mark.parametrize("fault", [drafter_position, wrong_d2t, padding_rows_write], ids=lambda f: f.__name__)
def test_faults_of_the_drafter_show_in_the_acceptance_alone(few, fault):
    rounds = _reference(few)
    engine = _engine(few)
    fault(engine)
    certificate = _certificate(few, engine, rounds=rounds)
    assert _failed(certificate) == {"acceptance"}
    assert certificate.num_exact == certificate.num_prompts, "verification corrects what the drafter says"


def _distribution(few: FewWords):
    prompt = text_prompt(3, 10)
    engine = _no_spec(few, max_num_seqs=100, max_num_batched_tokens=1200)
    requests = [request(i, prompt, max_tokens=3, temperature=TEMPERATURE, seed=i + 77) for i in range(NUM_SEEDS)]
    outputs = generate(engine, requests, _silent).outputs
    return DistributionJudge(few.target("cpu"), prompt, TEMPERATURE).test(outputs)


def test_the_right_sampler_passes_the_distribution_test(few):
    found = _distribution(few)
    assert found.ok and found.is_telling


def test_a_biased_sampler_fails_although_every_arm_agrees(few, monkeypatch):
    bias_sampler(monkeypatch)
    certificate = _certificate(few, _engine(few), TEMPERATURE, distribution=_distribution(few))
    assert _failed(certificate) == {"regret", "distribution"}
    assert certificate.num_exact == certificate.num_prompts
