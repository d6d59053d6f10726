"""The arms of a certificate by engine: each arm is compared with its own engine's arm without speculation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from specbench.harness.engines.several import Engines
from specbench.harness.quality.certificate.plain import baseline_of, check_real, with_references
from specbench.harness.quality.certificate.scores import has_weights
from specbench.harness.registry import BASELINE
from specbench.harness.spec.arm import ArmConfig

_PYTHON = "python"  # the environment that has the engine: another one is another build
_SERVERS = ("command", "url")  # not started by us: only the user knows what they serve without speculation


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Arms of one installation of another engine, by label; `baseline` is one of them."""

    engine: str
    baseline: str
    labels: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CertifiedArms:
    """`arms`: all to run. `own`: labels of our own engine's arms; `references`: see `with_references`."""

    arms: tuple[ArmConfig, ...]
    own: tuple[str, ...]
    references: Mapping[str, str]
    groups: tuple[Group, ...]


def arms_by_engine(arms: Sequence[ArmConfig], engines: Engines) -> CertifiedArms:
    """Raises ValueError for arms that cannot be certified."""
    own = [arm for arm in arms if has_weights(engines.of(arm))]
    every, references = with_references(own) if own else ((), {})
    by_engine: dict[tuple[str, str], list[ArmConfig]] = {}
    for arm in arms:
        if arm not in own:
            check_real(arm)
            by_engine.setdefault((arm.engine_name, arm.engine.get(_PYTHON, "")), []).append(arm)
    completed = [_with_baseline(others) for others in by_engine.values()]
    return CertifiedArms(
        arms=(*every, *(arm for others in completed for arm in others)),
        own=tuple(arm.label for arm in every),
        references=references,
        groups=tuple(_group(others, engines.of(others[0]).name) for others in completed),
    )


def _with_baseline(arms: list[ArmConfig]) -> list[ArmConfig]:
    baseline = next((arm for arm in arms if arm.strategy == BASELINE), None)
    if baseline is None:
        served = next((arm for arm in arms if any(key in arm.engine for key in _SERVERS)), None)
        if served is not None:
            raise ValueError(
                f"strategy: {served.label} is your own server, and only you know how to run it without speculation; "
                f"add that as an arm {baseline_of(arms[0].engine_name).label}:url=... or :command=..."
            )
        program = {key: value for key, value in arms[0].engine.items() if key == _PYTHON}
        baseline = replace(baseline_of(arms[0].engine_name), engine=program)
        baseline = replace(baseline, label=baseline.text)
        arms = [baseline, *arms]
    url = baseline.engine.get("url")
    for arm in arms:
        if arm is not baseline and url is not None and arm.engine.get("url") == url:
            raise ValueError(
                f"url: {arm.label} and {baseline.label} are both {url}; a server always agrees with itself"
            )
    return arms


def _group(arms: Sequence[ArmConfig], engine: str) -> Group:
    baseline = next(arm.label for arm in arms if arm.strategy == BASELINE)
    return Group(engine=engine, baseline=baseline, labels=tuple(arm.label for arm in arms))
