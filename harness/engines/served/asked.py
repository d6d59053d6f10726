"""Parses an arm's options for engines other than our own, and refuses those that the engine does not have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.choices import ALLOWED, Choices

DEFAULTS = {"acceptance": "real", **{each.name: each.default for each in fields(Choices) if each.name in ALLOWED}}


def refuse_switches(arm: ArmConfig, engine: str, reasons: Mapping[str, str]) -> None:
    """ValueError with the reason for a switch that the engine does not have."""
    for key, reason in reasons.items():
        value = arm.engine.get(key)
        if value is not None and value != DEFAULTS.get(key):
            raise ValueError(f"{key}: {value!r} cannot be given to {engine}; {reason}")


def whole(key: str, text: str) -> int:
    if not text.isdigit() or text == "0":
        raise ValueError(f"{key}: {text!r} is not allowed; allowed: a whole number, 1 or more")
    return int(text)


def forced_acceptance(text: str, engine: str) -> float | list[float] | None:
    """A length, or rates by position; None for `real`."""
    kind, _, how = text.partition(":")
    if text == "real":
        return None
    try:
        if kind != "synthetic" or how.startswith("histogram="):
            raise ValueError
        if how.startswith("rates="):
            return [float(rate) for rate in how.removeprefix("rates=").split("/")]
        return float(how)
    except ValueError as error:
        raise ValueError(
            f"acceptance: {text!r} is not allowed for {engine}; allowed: real, synthetic:LENGTH, "
            "synthetic:rates=r1/r2/.."
        ) from error
