"""`specbench.toml`: which gates a run must pass. Unknown keys are errors, with the nearest known one.

suite = "cpu-small"              # identifies the pull-request comment to update
inconclusive = "warn"            # or fail, pass
missing = "fail"                 # for gates without data; or warn
arms = ["no-spec", "eagle:k=4"]  # default: all arms of the run
baseline = "no-spec"             # an arm of the run itself, if --against is not given

[gate.syncs_per_round]
max = 1
[gate.step_ms]
min_effect = "1%"
alpha = 0.05
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from specbench.harness.judge.acceptance_gates import AcceptanceGate, PositionsGate
from specbench.harness.judge.accuracy_gate import AccuracyGate
from specbench.harness.judge.correctness import CertificateGate, FailedRequestsGate, SameOutputGate
from specbench.harness.judge.gate_result import Gate
from specbench.harness.judge.limits import Text, read_table, unknown
from specbench.harness.judge.structural import GraphShareGate, LaunchesGate, SyncsGate
from specbench.harness.judge.timed import TIMED_GATES, TimedLimit
from specbench.workloads.guarded import parse_toml, read_text

COUNTED_GATES: Mapping[str, type[Gate]] = {
    kind.name: kind
    for kind in (
        FailedRequestsGate,
        GraphShareGate,
        LaunchesGate,
        SyncsGate,
        AcceptanceGate,
        PositionsGate,
        SameOutputGate,
        CertificateGate,
        AccuracyGate,
    )
}
_NAMES = (*COUNTED_GATES, *TIMED_GATES)


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """A policy file. `gate`: by name, a `Gate`, or a `TimedLimit` for a timed figure."""

    suite: Text = "specbench"
    inconclusive: Literal["fail", "pass", "warn"] = "warn"
    missing: Literal["fail", "warn"] = "fail"
    arms: Annotated[tuple[str, ...], Meta(min_length=1)] = ()
    baseline: Text | None = None
    gate: dict[str, Any]

    @property
    def counted(self) -> list[Gate]:
        """Failed requests are always checked."""
        gates = [gate for gate in self.gate.values() if isinstance(gate, Gate)]
        return gates if FailedRequestsGate.name in self.gate else [FailedRequestsGate(), *gates]

    @property
    def timed(self) -> list[tuple[str, TimedLimit]]:
        return [(name, limit) for name, limit in self.gate.items() if isinstance(limit, TimedLimit)]


def read_policy(path: Path) -> Policy:
    """ValueError naming the file, the key and the allowed values if the file is not a valid policy."""
    try:
        text = read_text(path)
    except FileNotFoundError as error:
        raise ValueError(f"policy: {path} does not exist; give a TOML file with --policy") from error
    except ValueError as error:  # it names the file
        raise ValueError(f"policy: {error}") from error
    try:
        raw = parse_toml(text)
    except ValueError as error:
        raise ValueError(f"policy: {path} is not TOML: {error}") from error
    try:
        return parse_policy(raw)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def parse_policy(raw: Mapping[str, Any]) -> Policy:
    """A policy from the tables of a TOML file."""
    policy = read_table(Policy, {"gate": {}, **raw}, "policy")
    if not policy.gate:
        raise ValueError(f"gate: no gate is given; allowed: tables [gate.NAME], NAME of {', '.join(_NAMES)}")
    for name, table in policy.gate.items():
        if name not in _NAMES:
            raise ValueError(f"gate: {unknown(name, _NAMES)}")
        policy.gate[name] = read_table(COUNTED_GATES.get(name, TimedLimit), table, f"gate.{name}")
    return policy
