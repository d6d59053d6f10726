"""From an arm's configuration to an engine that can run it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

from .engine.config import EngineConfig
from .engine.engine import Engine
from .engine.ranges import ranges_named
from .engine.request import Request
from .engine.strategy import Strategy
from .engine.synthetic import SyntheticAcceptance, parse_acceptance
from .engine.target_cache import CacheMemory
from .models.llama import LlamaModel
from .registry import ATTENTION_BACKENDS, STATE_UPDATES, lookup, strategy_class
from .spec.arm import GRAPH_PART_KEYS, ArmConfig
from .spec.legality import ALLOWED, Choices, resolve
from .spec.run_config import RunConfig


@dataclass(frozen=True, slots=True)
class ResolvedArm:
    """An arm whose every switch is known; `notes` are what a reader of its row must know."""

    config: ArmConfig
    strategy: Strategy
    choices: Choices
    acceptance: SyntheticAcceptance | None
    notes: tuple[str, ...]

    def described(self) -> dict[str, Any]:
        return {
            **self.choices.described(),
            "status_lag": self.choices.status_lag,
            "num_drafts": self.strategy.num_drafts,
            "options": dict(self.config.options),
            "acceptance": self.acceptance.description if self.acceptance else "real",
        }


def resolve_arm(arm: ArmConfig, device: str, synthetic_weights: bool) -> ResolvedArm:
    """Checks an arm before anything is loaded. Raises ValueError naming what is allowed."""
    strategy = strategy_class(arm.strategy).of(arm.options)
    assert isinstance(strategy, Strategy)
    engine = dict(arm.engine)
    lag = engine.pop("status_lag", None)
    acceptance_text = engine.pop("acceptance", "real")
    if lag is not None and not lag.isdigit():
        raise ValueError(f"status_lag: {lag!r} is not a whole number >= 0")
    parts = {key.removeprefix("graph_"): engine[key] for key in GRAPH_PART_KEYS if key in engine}
    switches = {key: engine[key] for key in ALLOWED if key in engine}
    asked = Choices(
        device=device,
        graph_parts=parts,
        status_lag=int(lag) if lag is not None else None,
        default_graph=strategy.graph,
        num_drafts=strategy.num_drafts,
        has_tree=strategy.tree is not None,
        can_unpad=strategy.can_unpad,
    )
    choices = resolve(replace(asked, **switches))  # type: ignore[arg-type]
    # Without drafts there is nothing to force: a global --acceptance leaves the baseline real.
    acceptance = parse_acceptance(acceptance_text, strategy.depth)
    return ResolvedArm(arm, strategy, choices, acceptance, _notes(engine, choices, acceptance, synthetic_weights))


def _notes(
    asked: dict[str, str], choices: Choices, acceptance: SyntheticAcceptance | None, synthetic_weights: bool
) -> tuple[str, ...]:
    notes = []
    if acceptance:
        notes.append(f"synthetic acceptance ({acceptance.description.partition(':')[2]})")
    if synthetic_weights:
        notes.append("synthetic weights")
    chosen = choices.described()
    for name in ("graph", "sync", "attention"):
        if asked.get(name) == "auto":
            notes.append(f"{name}=auto chose {chosen[name]}")
    if chosen["graph"] != choices.default_graph and asked.get("graph", "auto") == "auto":
        notes.append(f"graph={chosen['graph']} ({_why_not(choices)})")
    return tuple(notes)


def _why_not(c: Choices) -> str:
    """What keeps an automatic graph plan from being the strategy's own."""
    if c.device != "cuda":
        return c.device
    others = {"attention": c.attention, "sync": c.sync, "drafter": c.drafter}
    return "because of " + ", ".join(f"{name}={value}" for name, value in others.items() if value)


def page_size_for(config: RunConfig, device: torch.device) -> int:
    """A CPU views runs of pages, so large pages are best there; 16 is what GPU engines use."""
    return config.page_size or (128 if device.type == "cpu" else 16)


def build_engine(
    arm: ResolvedArm, config: RunConfig, target: LlamaModel, cache_memory: CacheMemory | None = None
) -> Engine:
    engine_config = EngineConfig(
        max_model_len=config.workload.max_model_len,
        max_num_seqs=config.max_concurrency,
        max_num_batched_tokens=config.max_num_batched_tokens,
        page_size=page_size_for(config, target.device),
        num_pages=config.num_pages,
        graph=arm.choices.plan,
        sync=arm.choices.sync,
        status_lag=arm.choices.status_lag or 0,
        drafter=arm.choices.drafter,
    )
    backends = {
        name: lookup(ATTENTION_BACKENDS, name, "attention")()
        for name in (arm.choices.attention, arm.choices.drafter_backend)
    }
    return Engine(
        engine_config,
        target,
        arm.strategy,
        backends[arm.choices.attention],
        arm.acceptance,
        ranges_named(config.ranges),
        drafter_backend=backends[arm.choices.drafter_backend],
        update=lookup(STATE_UPDATES, arm.choices.state_update, "state_update")(),
        cache_memory=cache_memory,
    )


def check_requests(engine: Engine, requests: Iterable[Request]) -> None:
    """Offers each request to an idle engine and withdraws it. Raises the engine's ValueError if it never fits."""
    for request in requests:
        engine.add(request)
        engine.abort(request.id)
        engine.step()
    assert not engine.has_work
