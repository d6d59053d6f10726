"""Resolves an arm's configuration: determines every switch."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from specbench.harness.engines.base import Capabilities
from specbench.harness.engines.native.core.strategy import Strategy
from specbench.harness.engines.native.core.synthetic import Forced, parse_acceptance
from specbench.harness.registry import strategy_class
from specbench.harness.spec.arm import GRAPH_PART_KEYS, PROGRAM_KEYS, ArmConfig, ArmSetup
from specbench.harness.spec.choices import ALLOWED, Choices
from specbench.harness.spec.legality import resolve
from specbench.harness.spec.plans import GraphPlan


@dataclass(frozen=True, slots=True)
class ResolvedArm:
    """An arm with every switch determined; `notes` are remarks for readers of its row."""

    config: ArmConfig
    strategy: Strategy
    choices: Choices
    acceptance: Forced | None
    notes: tuple[str, ...]

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities()

    @property
    def graph_parts(self) -> GraphPlan:
        return self.choices.plan

    @property
    def footprint(self) -> int:
        """The arm that writes furthest ahead needs the largest caches; all others fit into its memory."""
        return self.strategy.lookahead.overhang

    def setup(self) -> ArmSetup:
        c = self.choices
        return ArmSetup(
            graph=c.plan.described(),
            sync=c.sync,
            attention=c.attention,
            attention_drafter=c.drafter_backend if c.num_drafts else None,
            drafter=c.drafter if c.num_drafts else None,
            state_update=c.state_update,
            status_lag=c.status_lag,
            num_drafts=self.strategy.num_drafts,
            options=dict(self.config.options),
            acceptance=self.acceptance.description if self.acceptance else "real",
            engine="specbench",
            driven="in process",
        )


def unasked(strategy: Strategy, device: str) -> Choices:
    """Choices of an arm that names only its strategy."""
    return Choices(
        device=device,
        default_graph=strategy.graph,
        num_drafts=strategy.num_drafts,
        has_tree=strategy.tree is not None,
        can_unpad=strategy.can_unpad,
    )


def resolve_arm(arm: ArmConfig, device: str, synthetic_weights: bool) -> ResolvedArm:
    """Checks an arm before anything is loaded. Raises ValueError naming what is allowed."""
    strategy = strategy_class(arm.strategy).of(arm.options)
    assert isinstance(strategy, Strategy)
    engine = dict(arm.engine)
    lag = engine.pop("status_lag", None)
    acceptance_text = engine.pop("acceptance", "real")
    if lag is not None and not re.fullmatch("0|[1-9][0-9]{0,8}", lag):
        raise ValueError(f"status_lag: {lag!r} is not a whole number >= 0")
    unused = [key for key in (*PROGRAM_KEYS, *(f"engine.{key}" for key in arm.own_config)) if key in engine]
    if unused:
        raise ValueError(f"{unused[0]}: {engine[unused[0]]!r} has no effect on our own engine; drop it")
    parts = {key.removeprefix("graph_"): engine[key] for key in GRAPH_PART_KEYS if key in engine}
    switches = {key: engine[key] for key in ALLOWED if key in engine}
    requested = replace(unasked(strategy, device), graph_parts=parts, status_lag=int(lag) if lag is not None else None)
    choices = resolve(replace(requested, **switches))  # type: ignore[arg-type]
    # Without drafts there is nothing to force: a global --acceptance leaves the baseline real.
    acceptance = parse_acceptance(acceptance_text, strategy.depth)
    notes = ["drawn drafts (sampled tokens are no-spec's in distribution only)"] if strategy.samples_drafts else []
    notes += _notes(engine, choices, acceptance, synthetic_weights)
    return ResolvedArm(arm, strategy, choices, acceptance, tuple(notes))


def _notes(
    requested: dict[str, str], choices: Choices, acceptance: Forced | None, synthetic_weights: bool
) -> tuple[str, ...]:
    notes = []
    if acceptance:
        notes.append(f"synthetic acceptance ({acceptance.description.partition(':')[2]})")
    if synthetic_weights:
        notes.append("synthetic weights")
    chosen = choices.described()
    for name in ("graph", "sync", "attention"):
        if requested.get(name) == "auto":
            notes.append(f"{name}=auto chose {chosen[name]}")
    if chosen["graph"] != choices.default_graph and requested.get("graph", "auto") == "auto":
        notes.append(f"graph={chosen['graph']} ({_why_not(choices)})")
    return tuple(notes)


def _why_not(c: Choices) -> str:
    """Why an automatic graph plan is not the strategy's own."""
    if c.device != "cuda":
        return c.device
    others = {"attention": c.attention, "sync": c.sync, "drafter": c.drafter}
    return "because of " + ", ".join(f"{name}={value}" for name, value in others.items() if value)
