"""Conformance 36 and the table of what may be combined: every rule refuses, `auto` never lands on a refused choice."""

from __future__ import annotations

import itertools

import pytest

from specbench.harness.engine import legality
from specbench.harness.engine.config import EngineConfig
from specbench.harness.engine.legality import ALLOWED, NOT_YET, RULES, Choices, resolve

# One choice for each rule that breaks this rule and no earlier one.
BREAKS: dict[str, Choices] = {
    "graph=full": Choices(device="cpu", graph="full"),
    "graph=one": Choices(device="cpu", graph="one"),
    "sync=none": Choices(device="cpu", sync="none"),
    "graph=one + drafts made on the host": Choices(device="cuda", graph="one", host_drafts=True),
    "sync=none + drafts made on the host": Choices(device="cuda", graph="full", sync="none", host_drafts=True),
    "attention=triton": Choices(device="cpu", attention="triton"),
    "attention=torch + a graph": Choices(device="cuda", attention="torch", graph="full"),
    "attention=torch + sync=none": Choices(device="cuda", attention="torch", graph="none", sync="none"),
    "status_lag": Choices(device="cuda", sync="single", status_lag=2),
}


@pytest.fixture(autouse=True)
def triton_is_there(monkeypatch):
    monkeypatch.setattr(legality, "_has", lambda package: True)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.choice)
def test_every_rule_refuses_with_its_reason(rule):
    assert rule.choice in BREAKS, "a rule without a test"
    with pytest.raises(ValueError) as refusal:
        resolve(BREAKS[rule.choice])
    text = str(refusal.value)
    assert text.startswith(f"{rule.choice} is refused: {rule.reason}")
    assert "resolved: graph=" in text and f"device={BREAKS[rule.choice].device}" in text


def test_every_rule_is_known_here():
    assert {rule.choice for rule in RULES} == BREAKS.keys()


@pytest.mark.parametrize("extra", [dict(sync="none", status_lag=0), dict(sync="single", status_lag=1)])
def test_lag_and_sync_must_agree(extra):
    with pytest.raises(ValueError, match="status_lag is refused"):
        resolve(Choices(device="cuda", **extra))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("default_graph", ["full", "one"])
@pytest.mark.parametrize("host_drafts", [False, True])
def test_auto_alone_is_never_refused(device, default_graph, host_drafts):
    if host_drafts and default_graph == "one":
        default_graph = "full"  # a strategy that drafts on the host does not ask for one graph
    resolved = resolve(Choices(device=device, default_graph=default_graph, host_drafts=host_drafts))
    assert "auto" not in resolved.described().values() and resolved.status_lag is not None


def test_auto_on_a_cpu_and_on_a_gpu():
    assert resolve(Choices(device="cpu")).described() == dict(
        graph="none", sync="single", attention="torch", drafter="padded"
    )
    gpu = resolve(Choices(device="cuda", default_graph="one"))
    assert gpu.described() == dict(graph="one", sync="none", attention="triton", drafter="padded")
    assert gpu.status_lag == 1 and resolve(Choices(device="cpu")).status_lag == 0
    torch_attention = resolve(Choices(device="cuda", attention="torch"))
    assert (torch_attention.graph, torch_attention.sync) == ("none", "single")


def test_without_triton_a_gpu_runs_the_torch_backend_and_refuses_triton(monkeypatch):
    monkeypatch.setattr(legality, "_has", lambda package: False)
    assert resolve(Choices(device="cuda")).described() == dict(
        graph="none", sync="single", attention="torch", drafter="padded"
    )
    with pytest.raises(ValueError, match="attention=triton is refused"):
        resolve(Choices(device="cuda", attention="triton"))


def test_what_was_named_is_what_runs_or_is_refused():
    """No silent fallback: no combination of named values is changed."""
    names = list(ALLOWED)
    outcomes = set()
    for device, *values in itertools.product(("cpu", "cuda"), *ALLOWED.values()):
        asked = dict(zip(names, values, strict=True))
        try:
            resolved = resolve(Choices(device=device, **asked))
        except ValueError:
            outcomes.add("refused")
            continue
        outcomes.add("accepted")
        for name, value in asked.items():
            assert value in ("auto", getattr(resolved, name))
        assert not any(rule.refused(resolved) for rule in RULES)
    assert outcomes == {"refused", "accepted"}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in NOT_YET.items() for v in values])
def test_c36_known_names_that_are_not_offered_say_so(name, value):
    with pytest.raises(ValueError, match=f"{name}: '{value}': .*not implemented yet; allowed: "):
        resolve(Choices(device="cuda", **{name: value}))


@pytest.mark.parametrize("name", ALLOWED)
def test_unknown_values_are_refused_with_the_allowed_ones(name):
    with pytest.raises(ValueError, match=f"{name}: 'bogus' is not known; allowed: {ALLOWED[name][0]}"):
        resolve(Choices(device="cuda", **{name: "bogus"}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(max_model_len=1), "max_model_len: 1 is not allowed; must be >= 2"),
        (dict(max_num_seqs=0), "max_num_seqs: 0"),
        (dict(max_num_batched_tokens=0), "max_num_batched_tokens: 0"),
        (dict(page_size=0), "page_size: 0"),
        (dict(num_pages=1), "num_pages: 1 is not allowed; must be >= 2"),
        (dict(status_lag=-1), "status_lag: -1"),
        (dict(status_lag=1), "status_lag: 1 does not go with sync=single"),
        (dict(sync="none"), "status_lag: 0 does not go with sync=none"),
    ],
)
def test_engine_sizes_that_cannot_work_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        EngineConfig(**change)
