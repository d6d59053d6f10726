"""The plan: order of the sides, what is refused, and that a stored plan is the one that was measured."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from ab_samples import sides

from specbench.harness.store.ab_record import AbPlan
from specbench.harness.store.codec import from_document, to_document

PLAN = AbPlan(sides=sides())


def test_every_two_blocks_hold_both_orders():
    for seed in range(20):
        order = AbPlan(sides=sides(), num_blocks=10, order_seed=seed).order()
        assert all({order[i], order[i + 1]} == {("A", "B"), ("B", "A")} for i in range(0, 10, 2))


def test_the_order_is_drawn_by_seed():
    drawn = Counter(tuple(AbPlan(sides=sides(), order_seed=seed).order()) for seed in range(200))
    assert len(drawn) == 2**5 and PLAN.order() == AbPlan(sides=sides()).order()
    assert len(AbPlan(sides=sides(), num_blocks=7).order()) == 7


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"num_blocks": 0}, "blocks: 0"),
        ({"min_effect": 0.0}, "min_effect: 0"),
        ({"min_effect": 1.5}, "min_effect: 1.5"),
        ({"min_same_output": 1.01}, "min_same_output"),
    ],
)
def test_refused(values, words):
    with pytest.raises(ValueError, match=words):
        AbPlan(sides=sides(), **values)


def test_a_stored_plan_comes_back():
    whole = replace(PLAN, num_blocks=12, min_effect=0.02, in_process=True, order_seed=7)
    assert from_document(AbPlan, json.loads(json.dumps(to_document(whole))), "ab") == whole
    with pytest.raises(ValueError, match="ab: .*`sides`"):
        from_document(AbPlan, {}, "ab")
