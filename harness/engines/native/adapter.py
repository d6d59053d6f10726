"""Our own engine behind the interface: the target and its tokenizer loaded once, an engine object an arm."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from specbench.harness.engines.base import Model, OpenProgress, with_arm
from specbench.harness.engines.native import target as targets
from specbench.harness.engines.native.arms import ResolvedArm, resolve_arm
from specbench.harness.engines.native.build import build_engine
from specbench.harness.engines.native.core.target_cache import CachePool
from specbench.harness.engines.native.deployment import NativeDeployment
from specbench.harness.registry import EngineKind, strategy_class
from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.conditions import Conditions, RunConfig
from specbench.harness.spec.devices import pick_device
from specbench.workloads.assets.shipped_heads import PREFIX, shipped_head, shipped_head_for


@dataclass(slots=True)
class NativeEngine(EngineKind):
    """Deployments do one thing at a time, one after another, so all keep their keys and values in the same memory."""

    name: str = field(default="specbench", init=False)
    _target: targets.Target | None = field(default=None, init=False)
    _caches: CachePool = field(default_factory=CachePool, init=False)

    @property
    def target(self) -> targets.Target:
        """Once `open` has loaded it; for what knows our own engine."""
        assert self._target is not None, "the engine was not opened"
        return self._target

    def resolve(self, arm: ArmConfig, conditions: Conditions) -> ResolvedArm:
        device = pick_device(conditions.device).type
        return resolve_arm(arm, device, synthetic_weights=conditions.load_format == "dummy")

    def open(self, config: RunConfig, progress: OpenProgress) -> tuple[Model, list[ResolvedArm]]:
        arms = [self._resolved(arm, config) for arm in config.arms]
        progress.say(f"loading {config.model}")
        self._target = target = targets.load(config, progress.asset)
        _check_against_model(config, target)
        model = Model(
            described=target.described,
            vocab_size=target.model.config.vocab_size,
            tokenizer=target.tokenizer,
            eos_token_ids=target.eos_token_ids,
        )
        return model, self._with_shipped_heads(arms, config)

    @torch.inference_mode()
    def deploy(self, arm: ResolvedArm, config: RunConfig, log: Path) -> NativeDeployment:
        engine = build_engine(arm, config, self.target.model, self._caches.lease())
        return NativeDeployment(engine, self.target.tokenizer)

    def _resolved(self, arm: ArmConfig, config: RunConfig) -> ResolvedArm:
        try:
            return self.resolve(arm, config)
        except ValueError as error:
            raise ValueError(with_arm(arm, str(error))) from error

    def _with_shipped_heads(self, arms: list[ResolvedArm], config: RunConfig) -> list[ResolvedArm]:
        """An arm that needs a head and names none gets the one that comes with the package for this very target."""
        described = self.target.described
        sha256 = described.sha256 or ""
        own = shipped_head_for(sha256, described.source or "")
        found = []
        for arm in arms:
            c = arm.config
            if own is not None and strategy_class(c.strategy).takes_head and not c.options.get("head"):
                c = replace(c, options={**c.options, "head": own.option})
                arm = self._resolved(c, config)
            if c.options.get("head", "").startswith(PREFIX):
                try:
                    notes = shipped_head(c.options["head"]).notes(sha256, config.workload.name)
                except ValueError as error:
                    raise ValueError(with_arm(c, str(error))) from error
                arm = replace(arm, notes=(*arm.notes, *notes))
            found.append(arm)
        return found


def _check_against_model(config: RunConfig, target: targets.Target) -> None:
    shape = target.model.config
    if config.workload.max_model_len > shape.max_position:
        raise ValueError(
            f"max_model_len: {config.workload.max_model_len} is longer than the model's {shape.max_position} "
            "positions; lower --max-model-len"
        )
    for token in config.stop_token_ids:
        if token >= shape.vocab_size:
            raise ValueError(f"stop_token_id: {token} is not allowed; the model has 0 to {shape.vocab_size - 1}")
