"""Forced acceptance at measured rates: `acceptance=measured:NAME`, from recipes/acceptance.toml."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from specbench.harness.registry import strategy_class
from specbench.workloads.guarded import parse_toml

from .arm import ArmConfig

MEASURED = Path(__file__).with_name("recipes") / "acceptance.toml"
_PREFIX = "measured:"


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredAcceptance:
    """`marginal[i]`: share of verifications that accepted at least i+1 drafts. `source`: what was measured, on what."""

    name: str
    marginal: tuple[float, ...]
    source: str

    def rates(self, depth: int) -> tuple[float, ...]:
        """Rates for `depth` positions: cut off at `depth`, and 0 beyond the measured positions. The latter understates
        longer chains, but forces only what was measured."""
        return (self.marginal + (0.0,) * depth)[:depth]

    @property
    def note(self) -> str:
        rates = " ".join(f"{rate:g}" for rate in self.marginal)
        return f"acceptance {_PREFIX}{self.name}: by position {rates}, then 0; {self.source}"


def measured_acceptances() -> dict[str, MeasuredAcceptance]:
    """All stored acceptance rates, by name."""
    raw = parse_toml(MEASURED.read_text(encoding="utf-8"))
    return {n: MeasuredAcceptance(name=n, marginal=tuple(t["marginal"]), source=t["source"]) for n, t in raw.items()}


def find_measured(text: str | None) -> MeasuredAcceptance | None:
    """The rates that `measured:NAME` names; None for any other form. ValueError, listing the known names, for an
    unknown one."""
    if text is None or not text.startswith(_PREFIX):
        return None
    known = measured_acceptances()
    name = text.removeprefix(_PREFIX)
    if name not in known:
        raise ValueError(f"acceptance: {text!r} is not known; allowed: {', '.join(_PREFIX + n for n in known)}")
    return known[name]


def with_measured_rates(arm: ArmConfig) -> ArmConfig:
    """The arm with `acceptance=measured:NAME` written out as rates, one for each position that it drafts."""
    measured = find_measured(arm.engine.get("acceptance"))
    if measured is None:
        return arm
    strategy = strategy_class(arm.strategy).of(arm.options)
    engine = {key: value for key, value in arm.engine.items() if key != "acceptance"}
    if strategy.num_drafts:
        engine["acceptance"] = "synthetic:rates=" + "/".join(f"{rate:g}" for rate in measured.rates(strategy.depth))
    return replace(arm, engine=engine)
