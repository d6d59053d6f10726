"""Conformance 1-4: what is accepted is known beforehand, and the output is the target's own whatever the drafts are."""

from __future__ import annotations

import pytest
from toy.engines import decode_rows, generate, make_engine, request
from toy.oracle import assert_as_oracle, continuations
from toy.plans import CPU, Plan, spread
from toy.prompts import text_prompt
from toy.scripted import PATTERNS, Script, Scripted

NUM_REQUESTS = 9


def _requests(temperature: float, num: int = NUM_REQUESTS, max_tokens: int = 24) -> list:
    return [
        request(i, text_prompt(i, 3 + 5 * i % 31), max_tokens=max_tokens, temperature=temperature, seed=77 + i)
        for i in range(num)
    ]


@pytest.fixture(scope="module")
def oracles():
    """No-spec continuations by device and temperature, computed once."""
    cache: dict[tuple[str, float], dict[int, list[int]]] = {}

    def find(plan: Plan, temperature: float) -> dict[int, list[int]]:
        key = (plan.device, temperature)
        if key not in cache:
            cache[key] = continuations(plan, _requests(temperature))
        return cache[key]

    return find


_CASES = [
    (f"{pattern}-{temperature}-{k}", (pattern, temperature, k))
    for pattern in PATTERNS
    for temperature in (0.0, 0.8)
    for k in range(1, 9)
]


@pytest.mark.parametrize(("plan", "case"), spread(_CASES))
def test_c01_every_depth_and_drafter_gives_the_output_of_no_spec(plan, case, oracles):
    pattern, temperature, k = case
    oracle = oracles(plan, temperature)
    requests = _requests(temperature)
    script = Script.of(requests, oracle, PATTERNS[pattern](k))
    engine = make_engine(plan, Scripted(k, script))
    assert_as_oracle(engine, generate(engine, requests), oracle, f"{pattern} k={k}")


@pytest.mark.parametrize("k", [1, 3, 4])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_c02_perfect_drafts_are_all_accepted(plan, oracles, k, temperature):
    requests = _requests(temperature)
    script = Script.of(requests, oracles(plan, temperature), PATTERNS["perfect"](k))
    engine = make_engine(plan, Scripted(k, script))
    finished = generate(engine, requests)
    for number, done in finished.items():
        rows = decode_rows(engine, number)
        assert [r.num_accepted for r in rows] == [k] * len(rows)
        # The first token comes from the prompt; the rest in rounds of k+1, the last one cut by the limit.
        assert len(rows) == -(-(len(done.output_ids) - 1) // (k + 1))
        assert all(r.num_emitted == k + 1 for r in rows[:-1])


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_c03_wrong_drafts_are_never_accepted(plan, oracles, k, temperature):
    requests, oracle = _requests(temperature), oracles(plan, temperature)
    engine = make_engine(plan, Scripted(k, Script.of(requests, oracle, PATTERNS["adversarial"](k))))
    finished = generate(engine, requests)
    assert_as_oracle(engine, finished, oracle)
    rows = decode_rows(engine)
    assert {r.num_accepted for r in rows} == {0} and {r.num_emitted for r in rows} == {1}
    assert len(rows) == sum(len(done.output_ids) - 1 for done in finished.values())


@pytest.mark.parametrize("pattern", ["cycling", "random", "partly-empty"])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_c04_accepted_counts_are_those_of_the_script(plan, oracles, pattern, k):
    """All different acceptances stand side by side in one step, and each request sees its own."""
    requests, oracle = _requests(0.0), oracles(plan, 0.0)
    script = Script.of(requests, oracle, PATTERNS[pattern](k))
    engine = make_engine(plan, Scripted(k, script), max_num_seqs=NUM_REQUESTS, max_num_batched_tokens=512)
    finished = generate(engine, requests)
    assert_as_oracle(engine, finished, oracle)
    for number in finished:
        accepted = [r.num_accepted for r in decode_rows(engine, number)]
        assert accepted == script.rounds[number][: len(accepted)] and accepted
    if pattern == "cycling" and plan.sync == "single":
        by_step: dict[int, set[int]] = {}
        for row in decode_rows(engine):
            by_step.setdefault(row.step, set()).add(row.num_accepted)
        assert max(len(s) for s in by_step.values()) == k + 1, "no step held every possible acceptance"


def test_scripts_that_disagree_would_be_noticed(oracles):
    """A drafter one position off is accepted by chance only: the tests above can fail."""
    requests, oracle = _requests(0.0), oracles(CPU, 0.0)
    script = Script.of(requests, oracle, PATTERNS["perfect"](3))
    script.tokens_FL = script.tokens_FL.roll(1, dims=1)
    engine = make_engine(CPU, Scripted(3, script))
    assert_as_oracle(engine, generate(engine, requests), oracle)
    rows = decode_rows(engine)
    assert sum(r.num_accepted for r in rows) < 0.5 * 3 * len(rows)
