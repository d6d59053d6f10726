"""From an arm's configuration to an engine that can run it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from .engine.config import EngineConfig
from .engine.engine import Engine
from .engine.legality import Choices, resolve
from .engine.request import Request
from .engine.strategy import Strategy
from .engine.synthetic import SyntheticAcceptance, parse_acceptance
from .measure.ranges import ranges_named
from .models.llama import LlamaModel
from .registry import ATTENTION_BACKENDS, STRATEGIES, lookup
from .run_config import ArmConfig, RunConfig


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
    strategy: Strategy = lookup(STRATEGIES, arm.strategy, "strategy")(arm.options)
    engine = dict(arm.engine)
    lag = engine.pop("status_lag", None)
    acceptance_text = engine.pop("acceptance", "real")
    if lag is not None and not lag.isdigit():
        raise ValueError(f"status_lag: {lag!r} is not a whole number >= 0")
    choices = resolve(
        Choices(
            device=device,
            graph=engine.get("graph", "auto"),
            sync=engine.get("sync", "auto"),
            attention=engine.get("attention", "auto"),
            drafter=engine.get("drafter", "padded"),
            status_lag=int(lag) if lag is not None else None,
            default_graph=strategy.graph,
        )
    )
    # Without drafts there is nothing to force: a global --acceptance leaves the baseline real.
    acceptance = parse_acceptance(acceptance_text, strategy.num_drafts)
    return ResolvedArm(arm, strategy, choices, acceptance, _notes(engine, choices, acceptance, synthetic_weights))


def _notes(
    asked: dict[str, str], choices: Choices, acceptance: SyntheticAcceptance | None, synthetic_weights: bool
) -> tuple[str, ...]:
    notes = []
    if acceptance:
        notes.append(f"synthetic acceptance ({acceptance.description.partition(':')[2]})")
    if synthetic_weights:
        notes.append("synthetic weights")
    for name in ("graph", "sync", "attention"):
        if asked.get(name) == "auto":
            notes.append(f"{name}=auto chose {getattr(choices, name)}")
    if choices.graph != choices.default_graph and asked.get("graph", "auto") == "auto":
        notes.append(f"graph={choices.graph} ({choices.device})")
    return tuple(notes)


def page_size_for(config: RunConfig, device: torch.device) -> int:
    """A CPU views runs of pages, so large pages are best there; 16 is what GPU engines use."""
    return config.page_size or (128 if device.type == "cpu" else 16)


def build_engine(arm: ResolvedArm, config: RunConfig, target: LlamaModel) -> Engine:
    engine_config = EngineConfig(
        max_model_len=config.workload.max_model_len,
        max_num_seqs=config.max_concurrency,
        max_num_batched_tokens=config.max_num_batched_tokens,
        page_size=page_size_for(config, target.device),
        num_pages=config.num_pages,
        attention=arm.choices.attention,
        graph=arm.choices.graph,
        sync=arm.choices.sync,
        status_lag=arm.choices.status_lag or 0,
    )
    backend = lookup(ATTENTION_BACKENDS, arm.choices.attention, "attention")()
    return Engine(engine_config, target, arm.strategy, backend, arm.acceptance, ranges_named(config.ranges))


def check_requests(engine: Engine, requests: Iterable[Request]) -> None:
    """Offers each request to an idle engine and withdraws it. Raises the engine's ValueError if it never fits."""
    for request in requests:
        engine.add(request)
        engine.abort(request.id)
        engine.step()
    assert not engine.has_work
