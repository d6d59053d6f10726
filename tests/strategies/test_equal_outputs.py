"""Conformance 1 over the whole space: every strategy says what no-spec says, for random depths, pages and batches."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest
import torch
from toy.compare import assert_same_output
from toy.engines import generate, make_engine, named_strategy, pad_rounds, request
from toy.oracle import assert_as_oracle, continuations
from toy.plans import Plan, spread
from toy.prompts import text_prompt
from toy.scripted import PATTERNS, Script, Scripted

from specbench.harness.engines.native.models.loader import dummy_target

STRATEGIES = ["no-spec", "eagle", "naive-eagle", "ngram", *PATTERNS, "parallel-eagle"]


@dataclass(frozen=True)
class Case:
    strategy: str
    k: int
    page_size: int
    batch: int
    budget: int
    num_requests: int
    padded: bool
    tight: bool
    multi: bool
    unpadded: bool

    @property
    def name(self) -> str:
        flags = "-padded" * self.padded + "-tight" * self.tight + "-multi" * self.multi + "-unpadded" * self.unpadded
        return f"{self.strategy}-k{self.k}-page{self.page_size}-batch{self.batch}-rows{self.budget}{flags}"

    def plan(self, given: Plan) -> Plan:
        """The plan with the case's own ways of waiting and drafting, where it leaves room for them."""
        if given.sync != "single" or given.graph in ("full", "one"):
            return given
        can_unpad = self.strategy in ("eagle", "naive-eagle") and given.graph in ("none", "piecewise")
        return replace(
            given,
            sync="multi" if self.multi else given.sync,
            drafter="unpadded" if self.unpadded and can_unpad else given.drafter,
        )


def _cases(num: int) -> list[Case]:
    """Every strategy equally often; K 1-8, pages 1-64, batches 1-17, prompt chunks from single rows up."""
    rng = random.Random(5)
    cases = []
    for index in range(num):
        batch = rng.randint(1, 17)
        cases.append(
            Case(
                strategy=STRATEGIES[index % len(STRATEGIES)],
                k=1 + index % 8,
                page_size=rng.choice((1, 2, 3, 4, 7, 8, 16, 32, 64)),
                batch=batch,
                budget=rng.choice((1, 5, 16, 64, 300)),
                num_requests=min(batch + rng.randint(0, 4), 17),
                padded=rng.random() < 0.4,
                tight=rng.random() < 0.4,
                multi=rng.random() < 0.4,
                unpadded=rng.random() < 0.4,
            )
        )
    return cases


def _requests(num: int) -> list:
    kinds = [dict(temperature=0.0), dict(temperature=0.9), dict(temperature=0.0), dict(temperature=0.7, top_p=0.8)]
    return [
        request(i, text_prompt(i, 1 + 7 * i % 37), max_tokens=3 + 5 * i % 17, seed=300 + i, **kinds[i % 4])
        for i in range(num)
    ]


@pytest.mark.parametrize(("plan", "case"), spread((case.name, case) for case in _cases(72)))
def test_c01_output_equals_no_spec(plan: Plan, case: Case):
    requests = _requests(case.num_requests)
    oracle = continuations(plan, requests)
    if case.strategy in PATTERNS:
        strategy = Scripted(case.k, Script.of(requests, oracle, PATTERNS[case.strategy](case.k)))
    else:
        options = {"no-spec": {}, "ngram": dict(k=case.k, min_n=1)}
        strategy = named_strategy(case.strategy, **options.get(case.strategy, dict(k=case.k, head="random")))
    longest = -(-(72 + case.k) // case.page_size)
    engine = make_engine(
        case.plan(plan),
        strategy,
        max_model_len=72,
        page_size=case.page_size,
        max_num_seqs=case.batch,
        max_num_batched_tokens=case.budget,
        num_pages=1 + 2 * longest if case.tight else None,
    )
    if case.padded and plan.device == "cpu":
        pad_rounds(engine, [3, 8, 20])
    assert_as_oracle(engine, generate(engine, requests), oracle, case.name)


@pytest.mark.parametrize("strategy", ["no-spec", "ngram", "eagle", "parallel-eagle"])
def test_c01_in_bfloat16_up_to_near_ties(main_plan, strategy):
    """Rows of a verify pass round otherwise than single rows; where the best two are apart, nothing may flip."""
    target = dummy_target("toy", torch.bfloat16, main_plan.torch_device)
    options = {"no-spec": {}, "ngram": dict(k=3, min_n=1)}.get(strategy, dict(k=3, head="random"))
    alone = generate(make_engine(main_plan, target=target, max_num_seqs=1), _requests(8))
    finished = generate(make_engine(main_plan, named_strategy(strategy, **options), target=target), _requests(8))
    for number, done in finished.items():
        # Logits of the toy model are below 1: a few units of 2^-8.
        expected = alone[number].output_ids
        assert_same_output(target, done.prompt_ids, done.sampling, done.output_ids, expected, strategy, tolerance=0.02)
