"""The deployments of a run: each made when it is first needed, ended when it fails or the run does."""

from __future__ import annotations

import gc
from contextlib import AbstractContextManager

from specbench.harness.engines.base import Deployment, Engine, ResolvedArm
from specbench.harness.spec.conditions import RunConfig


class Deployments:
    def __init__(self, engine: Engine, config: RunConfig):
        self._engine, self._config = engine, config
        self._open: dict[str, tuple[AbstractContextManager[Deployment], Deployment]] = {}

    def __contains__(self, label: str) -> bool:
        return label in self._open

    @property
    def labels(self) -> list[str]:
        return list(self._open)

    def of(self, arm: ResolvedArm) -> Deployment:
        """Raises what `Engine.deploy` raises."""
        label = arm.config.label
        if label not in self._open:
            context = self._engine.deploy(arm, self._config)
            self._open[label] = context, context.__enter__()
        return self._open[label][1]

    def drop(self, label: str) -> None:
        """Ends a deployment, if there is one, and gives its memory back."""
        context, _ = self._open.pop(label, (None, None))
        if context is not None:
            context.__exit__(None, None, None)
        del context, _
        gc.collect()

    def close(self) -> None:
        for label in self.labels:
            self.drop(label)
