"""The arms of a certificate: the requested ones, the baseline, and a plain mode of each strategy to agree with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specbench.harness.registry import BASELINE
from specbench.harness.spec.arm import ArmConfig

_PLAIN = {"graph": "none", "sync": "single", "state_update": "torch"}
_KEPT = ("attention",)  # which backends there are depends on the machine: the plain mode keeps the arm's own


def baseline_of(engine_name: str) -> ArmConfig:
    """The arm without speculation of an engine."""
    bare = ArmConfig(label=BASELINE, strategy=BASELINE, engine_name=engine_name)
    return replace(bare, label=bare.text)


def check_real(arm: ArmConfig) -> None:
    """ValueError for forced acceptance, whose output is not meant to be correct."""
    forced = arm.engine.get("acceptance", "real")
    if forced != "real":
        raise ValueError(f"acceptance: {arm.label} has {forced!r}; only real acceptance can be certified")


def with_references(arms: Sequence[ArmConfig]) -> tuple[tuple[ArmConfig, ...], dict[str, str]]:
    """All arms to run, and the arm whose rounds each one must repeat (labels; none for the baseline and plain modes).

    For our own engine, under any name. Raises ValueError for an arm with forced acceptance, whose output is not meant
    to be correct.
    """
    for arm in arms:
        check_real(arm)
    every = list(arms)
    if not any(arm.strategy == BASELINE for arm in every):
        every.insert(0, baseline_of(arms[0].engine_name))
    references: dict[str, str] = {}
    for arm in [a for a in every if a.strategy != BASELINE]:
        plain = next((a for a in every if _same_drafts(a, arm) and _is_plain(a)), None)
        if plain is None:
            plain = _plain(arm)
            every.append(plain)
        if plain.label != arm.label:
            references[arm.label] = plain.label
    return tuple(every), references


def _same_drafts(a: ArmConfig, b: ArmConfig) -> bool:
    return (a.strategy, a.options) == (b.strategy, b.options)


def _is_plain(arm: ArmConfig) -> bool:
    return {key: value for key, value in arm.engine.items() if key not in _KEPT} == _PLAIN


def _plain(arm: ArmConfig) -> ArmConfig:
    """The same drafts, with every kernel launched from the host and the state advanced by torch."""
    engine = {**_PLAIN, **{key: arm.engine[key] for key in _KEPT if key in arm.engine}}
    plain = replace(arm, options=dict(arm.options), engine=engine)
    return replace(plain, label=plain.text)
