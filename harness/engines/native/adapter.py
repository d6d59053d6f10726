"""Our own engine behind the interface: the target and its tokenizer are loaded once, with one engine object per arm."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from specbench.harness.engines.base import Model, OpenProgress, with_arm
from specbench.harness.engines.native import target as targets
from specbench.harness.engines.native.arms import ResolvedArm, resolve_arm
from specbench.harness.engines.native.build import build_engine
from specbench.harness.engines.native.core.target_cache import CachePool
from specbench.harness.engines.native.deployment import NativeDeployment
from specbench.harness.engines.native.models.all_reduce import check_method
from specbench.harness.engines.native.models.group import ALONE, Group
from specbench.harness.engines.native.models.heads import check_head_files
from specbench.harness.engines.native.models.loader import check_split
from specbench.harness.engines.native.plausible import implausible
from specbench.harness.engines.native.ranks.deployment import RankedDeployment
from specbench.harness.engines.native.ranks.processes import Processes
from specbench.harness.registry import EngineKind, strategy_class
from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.conditions import Conditions, RunConfig
from specbench.harness.spec.devices import pick_device
from specbench.workloads.assets.shipped_heads import PREFIX, shipped_head, shipped_head_for


@dataclass(slots=True)
class NativeEngine(EngineKind):
    """Deployments run one after another, so all keep their KV caches in the same memory. `group`: of the rank that this
    process is.

    A run with several ranks starts them when it is opened; each rank has an engine like this one, and this one only
    sends them orders.
    """

    name: str = field(default="specbench", init=False)
    group: Group = ALONE
    _config: RunConfig | None = field(default=None, init=False)
    _ranks: Processes | None = field(default=None, init=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count, init=False)
    _target: targets.Target | None = field(default=None, init=False)
    _caches: CachePool = field(default_factory=CachePool, init=False)

    @property
    def target(self) -> targets.Target:
        """For code that knows our own engine. With several ranks, each of which has a part of it, the whole target is
        loaded here when it is first needed, so that its judgement of the ranks does not depend on the split. ValueError
        if it does not fit next to them."""
        assert self._config is not None, "the engine was not opened"
        if self._target is None:
            self._target = targets.load(self._config)
        return self._target

    def resolve(self, arm: ArmConfig, conditions: Conditions) -> ResolvedArm:
        device = pick_device(conditions.device).type
        return resolve_arm(arm, device, synthetic_weights=conditions.load_format == "dummy")

    def open(self, config: RunConfig, progress: OpenProgress) -> tuple[Model, list[ResolvedArm]]:
        self._config = config
        arms = [self._resolved(arm, config) for arm in config.arms]
        for arm in config.arms:
            _check_head(arm, progress)
        if config.tensor_parallel_size > self.group.size:
            check_ranks(config, progress)
            self._ranks = Processes(config.tensor_parallel_size)
            try:
                opened: tuple[Model, list[ResolvedArm]] = self._ranks.ask(progress, "open", config)
            except BaseException:
                self.close()
                raise
            return opened
        progress.say(f"loading {config.model}")
        self._target = target = targets.load(config, progress.asset, self.group)
        _check_against_model(config, target)
        model = Model(
            described=target.described,
            vocab_size=target.model.config.vocab_size,
            tokenizer=target.tokenizer,
            eos_token_ids=target.eos_token_ids,
        )
        if target.tokenizer is not None and (doubt := implausible(target.model, target.tokenizer)):
            arms = [replace(arm, notes=(*arm.notes, doubt)) for arm in arms]
        return model, self._with_shipped_heads(arms, config)

    def close(self) -> None:
        if self._ranks is not None:
            self._ranks.end("the run is over")

    @torch.inference_mode()
    def deploy(self, arm: ResolvedArm, config: RunConfig, log: Path) -> NativeDeployment | RankedDeployment:
        if self._ranks is not None:
            number = next(self._numbers)
            return RankedDeployment(self._ranks, number, *self._ranks.ask(None, "deploy", number, arm, config))
        engine = build_engine(arm, config, self.target.model, self._caches.lease())
        return NativeDeployment(engine, self.target.tokenizer)

    def _resolved(self, arm: ArmConfig, config: RunConfig) -> ResolvedArm:
        try:
            return self.resolve(arm, config)
        except ValueError as error:
            raise ValueError(with_arm(arm, str(error))) from error

    def _with_shipped_heads(self, arms: list[ResolvedArm], config: RunConfig) -> list[ResolvedArm]:
        """An arm that needs a head and names none gets the one shipped for this exact target."""
        described = self.target.described
        sha256 = described.sha256 or ""
        own = shipped_head_for(sha256, described.source or "")
        found = []
        for arm in arms:
            c = arm.config
            kind = strategy_class(c.strategy)
            if own is not None and kind.takes_head and not kind.one_pass and not c.options.get("head"):
                c = replace(c, options={**c.options, "head": own.option})
                arm = self._resolved(c, config)
            if c.options.get("head", "").startswith(PREFIX):
                try:
                    notes = shipped_head(c.options["head"]).notes(sha256, config.workload.names)
                except ValueError as error:
                    raise ValueError(with_arm(c, str(error))) from error
                arm = replace(arm, notes=(*arm.notes, *notes))
            found.append(arm)
        return found


def _check_head(arm: ArmConfig, progress: OpenProgress) -> None:
    kind = strategy_class(arm.strategy)
    if kind.takes_head:
        try:
            check_head_files(arm.options.get("head", ""), arm.strategy, progress.asset, kind.one_pass)
        except ValueError as error:
            raise ValueError(with_arm(arm, str(error))) from error


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


def check_ranks(config: RunConfig, progress: OpenProgress) -> None:
    """ValueError, before any process is started, for more ranks than there are GPUs or than can share the model, and
    for an all-reduce method that the device does not have. The model's files are then on disk: the ranks only read
    them."""
    device = pick_device(config.device)
    check_split(targets.shape_of(config, progress.asset), config.tensor_parallel_size)
    check_method(config.all_reduce, device)
    if device.type == "cuda" and (found := torch.cuda.device_count()) < config.tensor_parallel_size:
        raise ValueError(
            f"tensor_parallel_size: {config.tensor_parallel_size} is not allowed; this machine has {found} GPU"
            f"{'s' if found > 1 else ''}, one a rank"
        )
