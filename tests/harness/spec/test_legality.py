"""Conformance 36 and the table of what may be combined: every rule refuses, `auto` never lands on a refused choice."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from specbench.harness.engines.native.core.config import EngineConfig
from specbench.harness.spec import legality
from specbench.harness.spec.choices import ALLOWED, PART_MODES, Choices
from specbench.harness.spec.legality import RULES, resolve
from specbench.harness.spec.plans import PARTS, PLANS, GraphPlan, parse_plan


def _cuda(**changes) -> Choices:
    return Choices(device="cuda", **{"graph": "none", "sync": "single", "attention": "triton", **changes})


# Choices for each rule that break this rule and no earlier one; the first of them is the rule's plainest case.
BREAKS: dict[str, list[Choices]] = {
    "graph": [
        Choices(device="cpu", graph="full_decode_only"),
        Choices(device="cpu", graph="one"),
        Choices(device="cpu", graph="none", graph_parts={"mixed": "piecewise"}),
    ],
    "sync=none": [Choices(device="cpu", sync="none")],
    "attention=triton": [
        Choices(device="cpu", attention="triton"),
        Choices(device="cpu", attention="torch", attention_drafter="triton"),
    ],
    "attention=flash-attention": [Choices(device="cpu", attention="flash-attention")],
    "attention=flashinfer": [Choices(device="cpu", attention="flashinfer")],
    "attention=flashinfer-xqa": [Choices(device="cpu", attention="flashinfer-xqa")],
    "attention=torch + a graph around attention": [
        _cuda(attention="torch", graph="full_decode_only"),
        _cuda(attention="torch", graph="one"),
        _cuda(attention="torch", graph="none", graph_parts={"mixed": "full"}),
        _cuda(attention_drafter="torch", graph="none", graph_parts={"later": "full"}),
    ],
    "attention=torch + sync=none": [
        _cuda(attention="torch", sync="none"),
        _cuda(attention_drafter="torch", sync="none"),
    ],
    "attention=flashinfer + graph=one": [_cuda(attention="flashinfer", graph="one")],
    "attention=flashinfer + sync=none": [_cuda(attention_drafter="flashinfer", sync="none")],
    "attention=flashinfer + graph_mixed=full": [_cuda(attention="flashinfer", graph="full")],
    "sync=multi + graph=one": [_cuda(sync="multi", graph="one")],
    "drafter=unpadded + no EAGLE chain": [_cuda(drafter="unpadded", can_unpad=False)],
    "drafter=unpadded + a graph of the first pass": [
        _cuda(drafter="unpadded", graph="full_decode_only"),
        _cuda(drafter="unpadded", graph="one"),
        _cuda(drafter="unpadded", graph_parts={"first": "full"}),
    ],
    "drafter=unpadded + sync=none": [_cuda(drafter="unpadded", sync="none")],
    "graph_mixed=full + the host in mid-step": [
        _cuda(sync="multi", graph="full"),
        _cuda(drafter="unpadded", graph_parts={"mixed": "full"}),
    ],
    "a tree + flash-attention": [
        _cuda(attention="flash-attention", has_tree=True),
        _cuda(attention_drafter="flash-attention", has_tree=True),
    ],
    "a tree + attention_drafter=flashinfer-xqa": [
        _cuda(attention_drafter="flashinfer-xqa", has_tree=True),
        _cuda(attention="flashinfer-xqa", has_tree=True),
    ],
    "a tree + graph_mixed=full": [_cuda(graph="full", has_tree=True)],
    "status_lag": [_cuda(status_lag=2), _cuda(sync="none", status_lag=0), _cuda(sync="multi", status_lag=1)],
}


@pytest.fixture(autouse=True)
def everything_is_installed(monkeypatch):
    monkeypatch.setattr(legality, "_has", lambda package: True)


def _cases() -> list:
    return [
        pytest.param(rule, choices, id=f"{rule.choice}-{index}")
        for rule in RULES
        for index, choices in enumerate(BREAKS.get(rule.choice, []))
    ]


@pytest.mark.parametrize(("rule", "choices"), _cases())
def test_c36_every_rule_refuses_with_its_reason(rule, choices):
    with pytest.raises(ValueError) as refusal:
        resolve(choices)
    text = str(refusal.value)
    assert text.startswith(f"{rule.choice} is refused: {rule.reason}")
    assert "resolved: graph=" in text and f"device={choices.device}" in text


def test_every_rule_has_a_case_and_every_case_a_rule():
    assert [rule.choice for rule in RULES] == list(BREAKS)


@pytest.mark.parametrize("choice", ["triton", "flash-attention", "flashinfer", "flashinfer-xqa"])
def test_a_backend_that_is_not_installed_is_refused(monkeypatch, choice):
    monkeypatch.setattr(legality, "_has", lambda package: False)
    monkeypatch.delenv("FA3_SO", raising=False)
    with pytest.raises(ValueError, match=f"attention={choice} is refused"):
        resolve(_cuda(attention=choice))


_STRATEGIES = [
    dict(default_graph="full", num_drafts=4),  # eagle
    dict(default_graph="one_and_full", num_drafts=1),  # naive-eagle
    dict(default_graph="full_and_piecewise", num_drafts=31, has_tree=True, can_unpad=False),  # eagle-topk
    dict(default_graph="one_and_full", num_drafts=4, can_unpad=False),  # ngram
    dict(default_graph="one_and_full", num_drafts=0, can_unpad=False),  # no-spec
]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("strategy", _STRATEGIES)
def test_auto_alone_is_never_refused(device, strategy):
    resolved = resolve(Choices(device=device, **strategy))
    assert "auto" not in resolved.described().values() and resolved.status_lag is not None


def _single_values(device: str, strategy: dict) -> list[Choices]:
    named = [{name: value} for name, values in ALLOWED.items() for value in values if value not in ("auto", "same")]
    return [Choices(device=device, **strategy, **one) for one in named]


@pytest.mark.parametrize("strategy", _STRATEGIES)
def test_one_word_is_refused_only_where_no_auto_could_save_it(strategy):
    """With one switch named, `auto` moves the others out of its way; what is refused then is refused for itself."""
    refused = set()
    for choices in _single_values("cuda", strategy):
        try:
            resolve(choices)
        except ValueError as error:
            refused.add(str(error).partition(" is refused")[0])
    allowed = {
        "drafter=unpadded + no EAGLE chain",
        "a tree + flash-attention",
        "a tree + attention_drafter=flashinfer-xqa",
        "a tree + graph_mixed=full",
    }
    assert refused <= allowed, refused - allowed


def test_auto_on_a_cpu_and_on_a_gpu():
    plain = dict(drafter="padded", state_update="fused")
    assert resolve(Choices(device="cpu")).described() == dict(
        graph="none", sync="single", attention="torch", attention_drafter="torch", **plain
    )
    gpu = resolve(Choices(device="cuda", default_graph="one_and_full"))
    assert gpu.described() == dict(
        graph="one_and_full", sync="none", attention="triton", attention_drafter="triton", **plain
    )
    assert gpu.status_lag == 1 and resolve(Choices(device="cpu")).status_lag == 0


@pytest.mark.parametrize(
    ("asked", "graph", "sync"),
    [
        (dict(attention="torch"), "none", "single"),
        (dict(attention_drafter="torch"), "none", "single"),
        (dict(attention="flashinfer"), "full_and_piecewise", "single"),
        (dict(sync="multi"), "full_and_piecewise", "multi"),
        (dict(has_tree=True), "one", "none"),
        (dict(graph_parts={"mixed": "none"}), "target:one/first:one/later:one/mixed:none", "none"),
        (dict(graph_parts={"mixed": "piecewise"}), "one", "none"),
        (dict(graph_parts={"first": "none"}), "target:full/first:none/later:full/mixed:full", "none"),
        (dict(graph="FULL_AND_PIECEWISE"), "full_and_piecewise", "none"),
        (dict(graph="full-decode-only"), "full_decode_only", "none"),
        (dict(drafter="unpadded"), "target:full/first:piecewise/later:full/mixed:piecewise", "single"),
        (dict(graph="none", graph_parts={"later": "full"}), "target:none/first:none/later:full/mixed:none", "none"),
    ],
)
def test_auto_goes_round_what_is_named(asked, graph, sync):
    resolved = resolve(Choices(device="cuda", default_graph="one_and_full", **asked))
    assert (resolved.plan.described(), resolved.sync) == (graph, sync)
    assert resolved.status_lag == (1 if sync == "none" else 0)


def test_without_triton_a_gpu_runs_the_torch_backend(monkeypatch):
    monkeypatch.setattr(legality, "_has", lambda package: False)
    described = resolve(Choices(device="cuda")).described()
    assert (described["graph"], described["sync"], described["attention"]) == ("none", "single", "torch")


def _all_parts() -> list[dict[str, str]]:
    values = [(None, *PART_MODES[part]) for part in PARTS]
    return [{p: m for p, m in zip(PARTS, modes, strict=True) if m} for modes in itertools.product(*values)]


def test_what_was_named_is_what_runs_or_is_refused():
    """No silent fallback: no combination of named values is changed. A sample of the whole product, with parts."""
    rng, outcomes, all_parts = random.Random(3), {"accepted": 0, "refused": 0}, _all_parts()
    for _ in range(20_000):
        asked = {name: rng.choice(values) for name, values in ALLOWED.items()}
        parts = rng.choice(all_parts) if rng.random() < 0.3 else {}
        choices = Choices(
            device=rng.choice(("cuda", "cuda", "cpu")), graph_parts=parts, **rng.choice(_STRATEGIES), **asked
        )
        try:
            resolved = resolve(choices)
        except ValueError:
            outcomes["refused"] += 1
            continue
        outcomes["accepted"] += 1
        _assert_as_asked(choices, resolved)
    assert min(outcomes.values()) > 1000, outcomes


def _assert_as_asked(asked: Choices, resolved: Choices) -> None:
    for name in ("sync", "attention", "state_update"):
        assert getattr(asked, name) in ("auto", getattr(resolved, name))
    if asked.num_drafts:
        assert resolved.drafter == asked.drafter and asked.attention_drafter in ("same", resolved.drafter_backend)
    for part in PARTS:
        mode = getattr(resolved.plan, part)
        assert mode == asked.graph_parts.get(part, mode)
        if asked.graph != "auto" and part not in asked.graph_parts:
            assert mode == getattr(PLANS[asked.graph], part)
    assert not any(rule.refused(resolved) for rule in RULES)


@pytest.mark.parametrize("name", ALLOWED)
def test_unknown_values_are_refused_with_the_allowed_ones(name):
    with pytest.raises(ValueError, match=f"{name}: 'bogus' is not known; allowed: {ALLOWED[name][0]}"):
        resolve(Choices(device="cuda", **{name: "bogus"}))


@pytest.mark.parametrize("part", PARTS)
def test_unknown_modes_of_a_part_are_refused_with_the_allowed_ones(part):
    with pytest.raises(ValueError, match=f"graph_{part}: 'bogus' is not known; allowed: none, piecewise, full"):
        resolve(Choices(device="cuda", graph_parts={part: "bogus"}))


# -- plans -------------------------------------------------------------------------------------------------------------


def test_plans_are_known_by_vllms_names_in_any_case():
    for name in ("full_decode_only", "FULL_DECODE_ONLY", "full-decode-only"):
        assert parse_plan(name, {}) == GraphPlan("full", "full", "full", "none")
    assert parse_plan("FULL_AND_PIECEWISE", {}) == GraphPlan("full", "full", "full", "piecewise")
    assert parse_plan("FULL", {}).mixed == "full"
    with pytest.raises(ValueError, match="graph: 'some' is not known; allowed: auto, none, piecewise"):
        parse_plan("some", {})


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_described_by_its_name_and_a_mixture_by_its_parts(name):
    assert PLANS[name].described() == name
    other = "full" if PLANS[name].mixed != "full" else "piecewise"
    mixture = replace(PLANS[name], mixed=other)
    assert mixture.described() in PLANS or mixture.described().endswith(f"/mixed:{other}")


@pytest.mark.parametrize(
    ("modes", "message"),
    [
        (("one", "one", "full", "none"), "one captures the whole round; target=one, first=one, later=full"),
        (("one", "one", "one", "one"), "graph_mixed: 'one' is not allowed"),
        (("some", "full", "full", "none"), "graph_target: 'some' is not known"),
    ],
)
def test_plans_that_cannot_be_are_refused(modes, message):
    with pytest.raises(ValueError, match=message):
        GraphPlan(*modes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(max_model_len=1), "max_model_len: 1 is not allowed; allowed: 2 or more"),
        (dict(max_num_seqs=0), "max_num_seqs: 0"),
        (dict(max_num_batched_tokens=0), "max_num_batched_tokens: 0"),
        (dict(mixed_chunk_size=0), "mixed_chunk_size: 0 is not allowed; allowed: 1 or more"),
        (dict(page_size=0), "page_size: 0"),
        (dict(num_pages=1), "num_pages: 1 is not allowed; allowed: 2 or more"),
        (dict(status_lag=-1), "status_lag: -1"),
        (dict(status_lag=1), "status_lag: 1 does not go with sync=single"),
        (dict(sync="none"), "status_lag: 0 does not go with sync=none"),
        (dict(sync="multi", status_lag=1), "status_lag: 1 does not go with sync=multi"),
    ],
)
def test_engine_sizes_that_cannot_work_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        EngineConfig(**change)
