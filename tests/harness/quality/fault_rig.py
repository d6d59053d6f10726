"""What planted faults are tested on: a target of four words, an EAGLE-3 head for it, and certificates of its engines.

fp32, so that nothing may differ: what a check sees is the fault. An engine is made for one certificate, since faults
stay in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.quality.faults import reference_rounds
from safetensors.torch import load_file, save_file
from toy.engines import asked, deployed, make_engine, named_strategy, request
from toy.few_words import FewWords
from toy.plans import CPU, Plan
from toy.prompts import text_prompt

from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import Request
from specbench.harness.quality.certificate.acceptance import Round
from specbench.harness.quality.certificate.certify import Certificate, Generated, Judge, generate
from specbench.harness.quality.certificate.distribution import DistributionJudge, DistributionTest
from specbench.harness.quality.certificate.tolerance import measure_tolerance
from specbench.harness.run.progress import NullProgress

K = 3
NUM_TOKENS = 32
NUM_SEEDS = 400
TEMPERATURE = 3.0  # where this target is not certain of its text
Strategy = tuple[str, dict]
CHAIN: Strategy = ("eagle", dict(k=K))
TREE: Strategy = ("eagle-topk", dict(num_steps=3, topk=2, num_draft_tokens=6))


def few_words(folder: Path) -> FewWords:
    """Of its own for every certificate: some faults change the head. Its attention depends on positions as a trained
    one does."""
    found = FewWords(folder)
    tensors = load_file(found.head / "model.safetensors")
    tensors["midlayer.self_attn.q_proj.weight"] *= 6
    save_file(tensors, found.head / "model.safetensors")
    return found


def requests_of(temperature: float = 0.0, num_tokens: int = NUM_TOKENS, num: int = 5) -> list[Request]:
    return [
        request(i, text_prompt(i + 1, 9 + 3 * (i % 5)), max_tokens=num_tokens, temperature=temperature, seed=i + 5)
        for i in range(num)
    ]


def spec_engine(few: FewWords, strategy: Strategy = CHAIN, plan: Plan = CPU, **config) -> Engine:
    name, options = strategy
    drafting = named_strategy(name, head=few.head, **options)
    return make_engine(plan, drafting, target=few.target(plan.device), **config)


def no_spec_engine(few: FewWords, plan: Plan = CPU, **config) -> Engine:
    return make_engine(Plan(plan.device), target=few.target(plan.device), **config)


def said(engine: Engine, requests: Sequence[Request]) -> Generated:
    return generate(deployed(engine), asked(requests), NullProgress())


def judged(
    few: FewWords,
    engine: Engine,
    requests: Sequence[Request],
    plain: tuple[str, Generated] | None = None,
    distribution: DistributionTest | None = None,
    plan: Plan = CPU,
) -> Certificate:
    """The certificate of what `engine` says, against an engine without speculation and without graphs."""
    target = few.target(plan.device)
    baseline = said(no_spec_engine(few, plan), requests)
    texts = [(r.prompt_ids, baseline.outputs[r.id]) for r in requests]
    judge = Judge(target, target, measure_tolerance(target, target, texts), asked(requests))
    return judge.certificate("arm", said(engine, requests), baseline, plain, distribution)


def dense_reference(few: FewWords) -> tuple[str, Generated]:
    """What the drafts of CHAIN accept in greedy rounds, by a dense head of its own."""
    baseline = said(no_spec_engine(few), requests_of())
    longer = said(no_spec_engine(few), requests_of(num_tokens=NUM_TOKENS + K))
    rounds: Mapping[int, Sequence[Round]] = reference_rounds(few, requests_of(), longer.outputs, K)
    return "the reference head", Generated(baseline.outputs, rounds)


def distribution_of(few: FewWords) -> DistributionTest:
    prompt = text_prompt(3, 10)
    engine = no_spec_engine(few, max_num_seqs=100, max_num_batched_tokens=1200)
    requests = [request(i, prompt, max_tokens=3, temperature=TEMPERATURE, seed=i + 77) for i in range(NUM_SEEDS)]
    return DistributionJudge(few.target("cpu"), prompt, TEMPERATURE).test(said(engine, requests).outputs)


def failed_checks(certificate: Certificate) -> set[str]:
    assert certificate.ok == (not certificate.problems)
    return {problem.partition(":")[0] for problem in certificate.problems}
