"""Conformance 1, 14, 17-19 on the default model: each strategy says what no-spec says, whatever changes the logits.

Skipped where the model is not in the cache: `specbench fetch smollm2-135m-instruct`.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch
from toy.engines import decode_rows, generate, make_engine, named_strategy, request
from toy.plans import CPU, Plan

from specbench.harness.engines.native import target as targets
from specbench.harness.engines.native.core import logit_edits
from specbench.harness.engines.native.core.request import Request
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.conditions import RunConfig
from specbench.workloads.assets.hub import Hub
from specbench.workloads.assets.resolve import is_cached
from specbench.workloads.assets.table import ASSETS

MODEL = "smollm2-135m-instruct"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_cached(ASSETS[MODEL], Hub()), reason=f"no {MODEL}: specbench fetch {MODEL}"),
]
LENGTH = 5
TEXTS = ("The capital of France is", "1, 2, 3, 4, 1, 2, 3, 4,", "def add(a, b):\n    return", "Once upon a time")
STRATEGIES = {
    "ngram": dict(k=3, min_n=1),
    "eagle": dict(k=3, head=f"shipped:{MODEL}"),
    "naive-eagle": dict(k=1, head=f"shipped:{MODEL}"),
    "eagle-topk": dict(num_steps=3, topk=2, num_draft_tokens=6, head=f"shipped:{MODEL}"),
    "draft-model": dict(k=2, draft="self:2"),
}


@cache
def loaded(device: str) -> targets.Target:
    return targets.load(RunConfig(arms=(parse_arm("no-spec"),), model=MODEL, dtype="float32", device=device))


def features(said: dict[int, list[int]]) -> list[dict]:
    """Each bites: made of what is said without any. One by one: harness/engines/native/core/test_logit_edits.py."""
    tokens = sorted({token for ids in said.values() for token in ids})
    pairs = tuple((ids[i], ids[i + 1]) for ids in said.values() for i in (0, 2))
    stops = tuple(dict.fromkeys(ids[2] for ids in said.values()))
    return [
        {},
        dict(repetition_penalty=1.5, frequency_penalty=1.0, presence_penalty=1.0, min_p=0.1),
        dict(bad_words=pairs, banned_token_ids=tuple(ids[1] for ids in said.values())),
        dict(allowed_token_ids=tuple(tokens), min_tokens=LENGTH - 1, stop_token_ids=stops),
        dict(logit_bias=tuple((token, -3.0) for token in tokens)),
    ]


def prompt(device: str, number: int) -> tuple[int, ...]:
    return tuple(loaded(device).tokenizer.encode_raw(TEXTS[number % len(TEXTS)]))


@cache
def plain(device: str) -> tuple[Request, ...]:
    """One request of each feature, greedy and sampled, as no-spec answers them."""
    engine = make_engine(Plan(device), target=loaded(device).model, max_num_batched_tokens=256)
    bare = generate(engine, [request(n, prompt(device, n), max_tokens=LENGTH) for n in range(len(TEXTS))])
    kinds = [
        dict(temperature=heat, **feature)
        for feature in features({n: done.output_ids for n, done in bare.items()})
        for heat in (0.0, 0.8)
    ]
    asked = [
        request(n, prompt(device, n // 2), max_tokens=LENGTH, seed=n, logprobs=n % 3, **kind)
        for n, kind in enumerate(kinds)
    ]
    engine = make_engine(Plan(device), target=loaded(device).model, max_num_seqs=len(asked), max_num_batched_tokens=256)
    return tuple(generate(engine, asked).values())


def answers(plan: Plan, name: str) -> tuple[dict[int, Request], list]:
    wanted = plain(plan.device)
    engine = make_engine(
        plan,
        named_strategy(name, **STRATEGIES[name]),
        target=loaded(plan.device).model,
        max_num_seqs=len(wanted),
        max_num_batched_tokens=256,
    )
    return generate(engine, [Request(r.id, r.prompt_ids, r.sampling) for r in wanted]), decode_rows(engine)


def test_every_feature_changes_something():
    bare = [
        request(r.id, r.prompt_ids, max_tokens=LENGTH, temperature=r.sampling.temperature, seed=r.sampling.seed)
        for r in plain("cpu")
    ]
    engine = make_engine(CPU, target=loaded("cpu").model, max_num_seqs=len(bare), max_num_batched_tokens=256)
    without = generate(engine, bare)
    changed = [without[r.id].output_ids != r.output_ids for r in plain("cpu")]
    assert [any(pair) for pair in zip(changed[::2], changed[1::2], strict=True)] == [False, *[True] * 4]


@pytest.mark.parametrize("name", STRATEGIES)
def test_c01_all_features_in_one_batch_equal_no_spec(main_plan: Plan, name: str):
    finished, rounds = answers(main_plan, name)
    for expected in plain(main_plan.device):
        done = finished[expected.id]
        assert done.output_ids == expected.output_ids, f"{name}: {expected.sampling.describe() or 'no feature'}"
        told, alone = ([one.logprob for one in r.logprobs] for r in (done, expected))
        assert told == pytest.approx(alone, abs=2e-3) and len(told) == len(done.output_ids)
    accepted = [row.num_accepted for row in rounds]
    assert any(accepted) and not all(accepted), "drafts of one kind only"


def test_a_planted_fault_is_seen(monkeypatch):
    """Penalties and bad words that see no draft."""
    real = logit_edits._sees_drafts
    monkeypatch.setattr(logit_edits, "_sees_drafts", lambda *a: torch.zeros_like(real(*a)))
    finished, _ = answers(CPU, "eagle")
    assert any(finished[r.id].output_ids != r.output_ids for r in plain("cpu"))
