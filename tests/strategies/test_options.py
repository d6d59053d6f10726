"""What a strategy asks for, and the options it takes."""

from __future__ import annotations

import dataclasses

import pytest
from toy.engines import make_engine, named_strategy
from toy.plans import CPU

from specbench.harness.engines.native.core.sampler import SamplingMode
from specbench.harness.registry import BASELINE, STRATEGIES, strategy_class
from specbench.harness.spec.arm import parse_arm

HEAD_STRATEGIES = {"eagle", "eagle-topk", "naive-eagle", "parallel-eagle"}


def test_defaults():
    found = {name: strategy_class(name).of({}) for name in STRATEGIES}
    assert {name: s.num_drafts for name, s in found.items()} == {
        "no-spec": 0, "eagle": 4, "eagle-topk": 31, "naive-eagle": 1, "draft-model": 4, "ngram": 4,
        "parallel-eagle": 4,
    }  # fmt: skip
    assert {name: s.graph for name, s in found.items()} == {
        "no-spec": "one_and_full", "eagle": "full", "eagle-topk": "full_and_piecewise", "naive-eagle": "one_and_full",
        "draft-model": "full", "ngram": "one_and_full", "parallel-eagle": "full",
    }  # fmt: skip
    assert all(s.name == name for name, s in found.items())
    assert {name for name, s in found.items() if s.tree is not None} == {"eagle-topk"}
    assert {name for name, s in found.items() if s.takes_head} == HEAD_STRATEGIES
    assert {name for name, s in found.items() if s.one_pass} == {"parallel-eagle"}
    assert {name for name, s in found.items() if s.can_unpad} == {"eagle", "naive-eagle"}


def test_declarations_agree_with_the_options():
    kinds = {name: strategy_class(name) for name in STRATEGIES}
    options = {name: {field.name for field in dataclasses.fields(kind)} for name, kind in kinds.items()}
    assert {name for name in kinds if "head" in options[name]} == HEAD_STRATEGIES
    assert all(kind.depth_option is None or kind.depth_option in options[name] for name, kind in kinds.items())
    assert [name for name, kind in kinds.items() if kind.is_baseline] == [BASELINE]
    assert [name for name, kind in kinds.items() if kind.depth_option is None] == [BASELINE]
    for kind in kinds.values():  # what others are told must be an argument that can be read
        for text in (kind.default_arm, kind.cover_options and f"{kind.name}:{kind.cover_options}"):
            if text:
                kind.of(parse_arm(text, {}).options)


def test_a_head_is_asked_for_only_when_an_engine_is_made():
    for name in sorted(HEAD_STRATEGIES):
        strategy = named_strategy(name)
        with pytest.raises(ValueError, match=f"{name}: no head for this model; give {name}:head=DIR"):
            make_engine(CPU, strategy)


@pytest.mark.parametrize(
    ("name", "phases"),
    [
        ("no-spec", []),
        ("ngram", ["draft_first"]),
        ("eagle", ["draft_first"] + ["draft_next"] * 3),
        ("parallel-eagle", ["draft_first"]),
    ],
)
def test_phases_of_a_drafter(name, phases):
    options = dict(head="random") if strategy_class(name).takes_head else {}
    engine = make_engine(CPU, named_strategy(name, **options))
    batch = engine.launcher.round_for(1, SamplingMode.GREEDY).batch
    drafter = engine.drafter
    assert [p.name for p in drafter.phases(batch)] == phases if drafter else phases == []
