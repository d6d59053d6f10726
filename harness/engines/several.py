"""The engines of one run: each arm goes to the engine that it names, and all get the same prompts."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from specbench.harness.engines.base import Deployment, Engine, Model, OpenProgress, ResolvedArm
from specbench.harness.registry import ENGINES, lookup
from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.conditions import Conditions, RunConfig


@dataclass(slots=True)
class Engines:
    """Engines by name, each created for the first arm that needs it. `default`: serves the arms that name no engine."""

    default: str
    _made: dict[str, Engine] = field(default_factory=dict, init=False)

    def of(self, arm: ArmConfig) -> Engine:
        """ValueError with the known names for an unknown one."""
        name = arm.engine_name or self.default
        if name not in self._made:
            self._made[name] = lookup(ENGINES, name, "engine")()
        return self._made[name]

    def takes_program(self, arm: ArmConfig) -> bool:
        return self.of(arm).takes_program

    def resolve(self, arm: ArmConfig, conditions: Conditions) -> ResolvedArm:
        """ValueError before anything is loaded or started."""
        self._check_own(arm, conditions)
        return self.of(arm).resolve(arm, conditions)

    def open(self, config: RunConfig, progress: OpenProgress) -> tuple[Model, list[ResolvedArm]]:
        """Opens each engine with its own arms. The model is that of the first engine that has a tokenizer; engines with
        known weights take precedence over servers.

        ValueError if two engines would serve different weights.
        """
        by_engine: dict[str, list[ArmConfig]] = {}
        for arm in config.arms:
            self._check_own(arm, config)  # also detects an unknown name, before anything is loaded
            by_engine.setdefault(arm.engine_name or self.default, []).append(arm)
        opened = {
            name: self._made[name].open(replace(config, engine=name, arms=tuple(arms)), progress)
            for name, arms in by_engine.items()
        }
        models = {name: model for name, (model, _) in opened.items()}
        _check_same_weights(models)
        resolved = {arm.config.label: arm for _, arms in opened.values() for arm in arms}
        model = min(models.values(), key=lambda model: (model.tokenizer is None, not model.described.sha256))
        return model, [resolved[arm.label] for arm in config.arms]

    def _check_own(self, arm: ArmConfig, conditions: Conditions) -> None:
        """ValueError for options that only our own engine supports."""
        if not self.of(arm).takes_program:
            return
        for name in ("logprobs", "prompt_logprobs"):
            if (value := getattr(conditions, name)) is not None:
                raise ValueError(f"{name}: {value} is not allowed with {arm.label}: only our own engine's are stored")
        if 0 < conditions.mixed_chunk_size < conditions.max_num_batched_tokens:
            raise ValueError(
                f"mixed_chunk_size: {conditions.mixed_chunk_size} is not allowed with {arm.label}: only our own engine "
                "limits prompts beside decodes; drop it"
            )
        if conditions.tensor_parallel_size > 1:
            raise ValueError(
                f"tensor_parallel_size: {conditions.tensor_parallel_size} is not allowed with {arm.label}: it splits "
                "our own engine's model; give the arm its engine's own option (engine.KEY=...)"
            )

    def can_begin(self, arm: ResolvedArm) -> bool:
        return self.of(arm.config).can_begin(arm)

    def begin(self, arm: ResolvedArm, config: RunConfig, log: Path) -> None:
        self.of(arm.config).begin(arm, config, log)

    def deploy(self, arm: ResolvedArm, config: RunConfig, log: Path) -> AbstractContextManager[Deployment]:
        return self.of(arm.config).deploy(arm, config, log)

    def close(self) -> None:
        for engine in self._made.values():
            engine.close()


def _check_same_weights(models: dict[str, Model]) -> None:
    known = {name: sha256 for name, model in models.items() if (sha256 := model.described.sha256)}
    if len(set(known.values())) > 1:
        different = " and ".join(f"{sha256[:12]} of {name}" for name, sha256 in known.items())
        raise ValueError(f"model: the engines would serve different weights: {different}")
