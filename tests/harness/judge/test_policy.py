from __future__ import annotations

import os
import re

import pytest

from specbench.harness.judge.policy import COUNTED_GATES, parse_policy, read_policy
from specbench.harness.judge.timed import TIMED_GATES


def test_a_whole_policy():
    policy = parse_policy(
        {
            "suite": "cpu-small",
            "inconclusive": "fail",
            "missing": "warn",
            "arms": ["eagle:k=4"],
            "gate": {
                "step_ms": {"min_effect": "2%", "alpha": 0.01, "direction": "lower"},
                "syncs_per_round": {"max": 1},
            },
        }
    )
    assert (policy.suite, policy.inconclusive, policy.missing, policy.arms) == (
        "cpu-small",
        "fail",
        "warn",
        ("eagle:k=4",),
    )
    ((name, limit),) = policy.timed
    assert name == "step_ms" and (limit.min_effect, limit.alpha) == (0.02, 0.01)
    assert [gate.name for gate in policy.counted] == ["failed_requests", "syncs_per_round"]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"gates": {}}, "key 'gates' is not known .did you mean 'gate'"),
        ({}, "no gate is given"),
        ({"gate": {"steps_ms": {}}}, "key 'steps_ms' is not known .did you mean 'step_ms'"),
        ({"gate": {"step_ms": {"min_efect": "1%"}}}, "gate.step_ms: key 'min_efect' .*did you mean 'min_effect'"),
        ({"gate": {"step_ms": {"min_effect": 1.5}}}, r'gate.step_ms.min_effect: 1.5 is not allowed; .*"1%"'),
        ({"gate": {"step_ms": {"min_effect": "one"}}}, "gate.step_ms.min_effect: 'one'"),
        ({"gate": {"step_ms": {"min_effect": "x%"}}}, "gate.step_ms.min_effect: 'x%'"),
        ({"gate": {"step_ms": {"min_effect": 0}}}, "gate.step_ms: min_effect and alpha"),
        ({"gate": {"step_ms": {"alpha": True}}}, "gate.step_ms.alpha: True"),
        ({"gate": {"step_ms": {"direction": "lowr"}}}, "did you mean 'lower'"),
        ({"gate": {"step_ms": 1}}, "gate.step_ms: 1 is not allowed; allowed: a table"),
        ({"gate": {"syncs_per_round": {"max": -1}}}, "gate.syncs_per_round.max: -1 .*>= 0"),
        ({"gate": {"syncs_per_round": {"max": float("nan")}}}, "gate.syncs_per_round.max: nan"),
        ({"gate": {"syncs_per_round": {"max": float("inf")}}}, "gate.syncs_per_round.max: inf"),
        ({"gate": {"certificate": {"required": "yes"}}}, "gate.certificate.required: 'yes' .*`bool`"),
        ({"gate": {"acceptance_length": {"reference": {}}}}, "gate.acceptance_length.reference"),
        ({"gate": {"acceptance_length": {"reference": {"eagle": "3"}}}}, "gate.acceptance_length.reference"),
        ({"inconclusive": "wanr", "gate": {"step_ms": {}}}, "policy.inconclusive: 'wanr' .*did you mean 'warn'"),
        ({"arms": "eagle", "gate": {"step_ms": {}}}, "policy.arms: 'eagle'"),
        ({"suite": 3, "gate": {"step_ms": {}}}, "policy.suite: 3"),
    ],
)
def test_what_is_refused(raw, message):
    with pytest.raises(ValueError, match=message):
        parse_policy(raw)


def test_files_are_named(tmp_path):
    with pytest.raises(ValueError, match="nowhere.toml does not exist"):
        read_policy(tmp_path / "nowhere.toml")
    path = tmp_path / "p.toml"
    path.write_text("[gate.step_ms\n")
    with pytest.raises(ValueError, match="p.toml is not TOML"):
        read_policy(path)
    path.write_text("[gate.step]\n")
    with pytest.raises(ValueError, match="p.toml: gate: key 'step'"):
        read_policy(path)


def test_what_is_no_file_is_not_called_bad_toml(tmp_path):
    pipe, text = tmp_path / "pipe", tmp_path / "latin.toml"
    os.mkfifo(pipe)
    text.write_bytes(b'suite = "\xe9"')
    with pytest.raises(ValueError, match=rf"^policy: {re.escape(str(pipe))}: is a device, .*; allowed: a file$"):
        read_policy(pipe)
    with pytest.raises(ValueError, match=rf"^policy: {re.escape(str(text))}: is not UTF-8 text"):
        read_policy(text)


def test_the_shipped_workflow_names_gates_that_exist():
    assert {"step_ms", "tokens_per_step", "tpot_ms"} <= set(TIMED_GATES)
    assert set(COUNTED_GATES).isdisjoint(TIMED_GATES)
