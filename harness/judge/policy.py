"""`specbench.toml`: which gates a run must pass. Unknown keys are errors, with the nearest known one.

suite = "cpu-small"              # names the comment that is updated in a pull request
inconclusive = "warn"            # or fail, pass
missing = "fail"                 # gates without data: or warn
arms = ["no-spec", "eagle:k=4"]  # default: all arms of the run
baseline = "no-spec"             # an arm of the run itself, where no --against is given

[gate.syncs_per_round]
max = 1
[gate.step_ms]
min_effect = "1%"
alpha = 0.05
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specbench.harness.judge.accuracy_gate import AccuracyGate
from specbench.harness.judge.correctness import CertificateGate, FailedRequestsGate, SameOutputGate
from specbench.harness.judge.limits import key, read_table, text, texts, unknown, word
from specbench.harness.judge.structural import AcceptanceGate, GraphShareGate, LaunchesGate, SyncsGate
from specbench.harness.judge.timed import TIMED_GATES, TimedLimit
from specbench.harness.text import tomllib

_GATE = "gate"
COUNTED_GATES: dict[str, Any] = {
    kind.name: kind
    for kind in (
        FailedRequestsGate,
        GraphShareGate,
        LaunchesGate,
        SyncsGate,
        AcceptanceGate,
        SameOutputGate,
        CertificateGate,
        AccuracyGate,
    )
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Head:
    suite: str = key(text, "specbench")
    inconclusive: str = key(word("fail", "pass", "warn"), "warn")
    missing: str = key(word("fail", "warn"), "fail")
    arms: tuple[str, ...] = key(texts, ())
    baseline: str | None = key(text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """A policy file, read. `counted`: gates with a method `results`; `timed`: limits by figure key."""

    suite: str
    inconclusive: str
    missing: str
    arms: tuple[str, ...]
    baseline: str | None
    counted: tuple[Any, ...]
    timed: tuple[tuple[str, TimedLimit], ...]


def read_policy(path: Path) -> Policy:
    """ValueError naming the file, the key and what is allowed, for whatever the file holds that is no policy."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"policy: {path} does not exist; give a TOML file with --policy") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"policy: {path} is no TOML: {error}") from error
    try:
        return parse_policy(raw)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def parse_policy(raw: dict[str, Any]) -> Policy:
    """A policy from the tables of a TOML file."""
    gates = raw.get(_GATE, {})
    allowed_keys = [*_Head.__dataclass_fields__, _GATE]
    for name in raw:
        if name not in allowed_keys:
            raise ValueError(unknown(name, allowed_keys))
    head = read_table(_Head, {k: v for k, v in raw.items() if k != _GATE}, "policy")
    if not isinstance(gates, dict) or not gates:
        raise ValueError(f"gate: no gate is given; allowed: tables [gate.NAME], NAME of {', '.join(_names())}")
    counted, timed = [], []
    for name, table in gates.items():
        if name in COUNTED_GATES:
            counted.append(read_table(COUNTED_GATES[name], table, f"gate.{name}"))
        elif name in TIMED_GATES:
            timed.append((name, _timed(table, f"gate.{name}")))
        else:
            raise ValueError(f"gate: {unknown(name, _names())}")
    if not any(isinstance(gate, FailedRequestsGate) for gate in counted):
        counted.insert(0, FailedRequestsGate())
    values = {name: getattr(head, name) for name in _Head.__dataclass_fields__}
    return Policy(**values, counted=tuple(counted), timed=tuple(timed))


def _timed(table: Any, where: str) -> TimedLimit:
    try:
        return read_table(TimedLimit, table, where)
    except ValueError as error:
        message = str(error)
        raise ValueError(message if message.startswith(where) else f"{where}: {message}") from error


def _names() -> list[str]:
    return [*COUNTED_GATES, *TIMED_GATES]
