"""Conformance 47-49: whatever the tree, the output is that of decoding without drafts, greedy and sampled."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from toy.engines import decode_rows, generate, make_engine, named_strategy, pad_rounds, request
from toy.oracle import assert_as_oracle, continuations
from toy.plans import CPU
from toy.prompts import text_prompt
from toy.scripted import Script, cycling, random_right
from toy.scripted_tree import ScriptedTree

from specbench.harness.engines.native.core.synthetic import SyntheticAcceptance
from specbench.harness.engines.native.core.tree import TreeShape
from specbench.harness.engines.native.models import heads


def requests_of(num: int, max_tokens: int = 20, **sampling) -> list:
    kinds = [dict(temperature=0.0), dict(temperature=0.9), dict(temperature=0.0), dict(temperature=0.7, top_p=0.8)]
    return [
        request(i, text_prompt(i, 1 + 7 * i % 37), max_tokens=max_tokens + i % 5, seed=300 + i, **kinds[i % 4])
        for i in range(num)
    ]


@dataclass(frozen=True)
class Case:
    num_nodes: int
    depth: int
    page_size: int
    batch: int
    budget: int
    padded: bool
    tight: bool

    @property
    def name(self) -> str:
        flags = "-padded" * self.padded + "-tight" * self.tight
        return f"d{self.num_nodes}-s{self.depth}-page{self.page_size}-batch{self.batch}-rows{self.budget}{flags}"


def _cases(num: int) -> list[Case]:
    """Trees of 2 to 64 nodes, pages 1-64, batches 1-9, prompt chunks from single rows up."""
    rng = random.Random(7)
    return [
        Case(
            num_nodes=(2, 3, 5, 8, 13, 32, 64)[index % 7],
            depth=rng.randint(1, 6),
            page_size=rng.choice((1, 2, 3, 4, 7, 8, 16, 32, 64)),
            batch=rng.randint(1, 9),
            budget=rng.choice((1, 5, 16, 64, 300)),
            padded=rng.random() < 0.4,
            tight=rng.random() < 0.3,
        )
        for index in range(num)
    ]


@pytest.mark.parametrize("case", _cases(28), ids=lambda case: case.name)
def test_c47_c48_scripted_trees_leave_the_output_as_it_is(main_plan, case: Case):
    """Right paths through any child, of any length up to the depth: acceptance, compaction and pages are all met."""
    requests = requests_of(case.batch + 2)
    oracle = continuations(main_plan, requests)
    shape = TreeShape(num_nodes=case.num_nodes, depth=case.depth, topk=3)
    script = Script.of(requests, oracle, random_right(case.depth))
    longest = -(-(72 + shape.reach) // case.page_size)
    engine = make_engine(
        main_plan,
        ScriptedTree(shape, script),
        max_model_len=72,
        page_size=case.page_size,
        max_num_seqs=case.batch,
        max_num_batched_tokens=case.budget,
        num_pages=1 + 2 * longest if case.tight else None,
    )
    if case.padded and main_plan.device == "cpu":
        pad_rounds(engine, [3, 8, 20])
    assert_as_oracle(engine, generate(engine, requests), oracle, case.name)


def test_accepted_paths_are_as_long_as_scripted():
    """Otherwise the test above would prove little: paths of every length, mostly not the tree's first nodes."""
    requests = requests_of(4, max_tokens=40)
    oracle = continuations(CPU, requests)
    shape = TreeShape(num_nodes=20, depth=4, topk=3)
    engine = make_engine(CPU, ScriptedTree(shape, Script.of(requests, oracle, cycling(4))))
    generate(engine, requests)
    rows = decode_rows(engine)
    assert {row.num_accepted for row in rows} == {0, 1, 2, 3, 4}
    assert all(row.num_accepted <= 4 for row in rows)


@pytest.mark.parametrize(
    ("topk", "num_steps", "num_draft_tokens"),
    [(1, 1, 2), (1, 4, 5), (2, 3, 2), (2, 4, 8), (4, 3, 16), (8, 2, 33), (8, 5, 64)],
)
def test_c47_random_heads_leave_the_output_as_it_is(main_plan, topk, num_steps, num_draft_tokens):
    requests = requests_of(6)
    oracle = continuations(main_plan, requests)
    strategy = named_strategy(
        "eagle-topk", topk=topk, num_steps=num_steps, num_draft_tokens=num_draft_tokens, head="random"
    )
    engine = make_engine(main_plan, strategy, max_num_batched_tokens=80)
    assert_as_oracle(engine, generate(engine, requests), oracle)


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_c47_a_tree_without_branches_is_the_chain(main_plan, page_size):
    """Same tokens, rounds and acceptance, forced acceptance included; drafts are compared in test_tree_drafts.py."""
    acceptance = SyntheticAcceptance((0.8, 0.6, 0.5), "varied")
    found = []
    for name, options in (("eagle", dict(k=3)), ("eagle-topk", dict(topk=1, num_steps=3, num_draft_tokens=4))):
        strategy = named_strategy(name, **options, head="random")
        engine = make_engine(main_plan, strategy, page_size=page_size, acceptance=acceptance)
        finished = generate(engine, requests_of(6))
        outputs = {number: done.output_ids for number, done in finished.items()}
        found.append((outputs, [(r.request_id, r.num_proposed, r.num_accepted) for r in decode_rows(engine)]))
    assert found[0] == found[1]


@pytest.mark.parametrize("forced", [1.0, 0.0])
def test_forced_acceptance_follows_the_first_path(main_plan, forced):
    """All or nothing: the path of first children may end before the tree does, but never before its first level."""
    strategy = named_strategy("eagle-topk", topk=2, num_steps=3, num_draft_tokens=8, head="random")
    engine = make_engine(main_plan, strategy, acceptance=SyntheticAcceptance((forced,) * 3, "fixed"))
    generate(engine, requests_of(4))
    accepted = [row.num_accepted for row in decode_rows(engine)]
    assert accepted and all(a >= 1 for a in accepted) if forced else set(accepted) == {0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(topk=0), "topk=0 is not allowed; allowed: 1 to 16"),
        (dict(num_steps=9), "num_steps=9 is not allowed; allowed: 1 to 8"),
        (dict(topk=2, num_steps=2, num_draft_tokens=8), "num_draft_tokens=8 is not allowed.*6 candidates.*2 to 7"),
        (dict(num_draft_tokens=1), "num_draft_tokens=1 is not allowed"),
        (dict(k=3), "unknown option 'k'"),
    ],
)
def test_refused_options(options, message):
    with pytest.raises(ValueError, match=message):
        named_strategy("eagle-topk", **options)


@pytest.mark.parametrize(("topk", "is_allowed"), [(5, True), (6, False)])
def test_a_node_has_no_more_children_than_the_head_has_tokens(monkeypatch, topk, is_allowed):
    monkeypatch.setattr(heads, "_random_draft_vocab", lambda target: 5)
    strategy = named_strategy("eagle-topk", topk=topk, num_steps=2, num_draft_tokens=8, head="random")
    if is_allowed:
        assert make_engine(CPU, strategy).drafter is not None
        return
    message = "eagle-topk: topk=6 is not allowed; allowed with this head, which drafts 5 different tokens: 1 to 5"
    with pytest.raises(ValueError, match=message):
        make_engine(CPU, strategy)
