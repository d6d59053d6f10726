"""The deployments of a run: each is created when first needed and closed when it fails or the run ends."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, suppress

from specbench.harness.engines.base import Deployment, NotReadyError, ResolvedArm
from specbench.harness.engines.several import Engines
from specbench.harness.run.logs import Logs
from specbench.harness.spec.conditions import RunConfig


class Deployments:
    def __init__(self, engine: Engines, config: RunConfig):
        self._engine, self._config = engine, config
        self.logs = Logs([arm.label for arm in config.arms])
        self._open: dict[str, tuple[AbstractContextManager[Deployment], Deployment]] = {}
        self._programs: set[str] = set()  # labels whose programs are stopped when another of their kind starts
        self._never_ready: dict[str, str] = {}  # label -> error of a program that did not become ready

    def __contains__(self, label: str) -> bool:
        return label in self._open

    @property
    def labels(self) -> list[str]:
        return list(self._open)

    def starts_at_its_turn(self, arm: ResolvedArm) -> bool:
        """Whether it runs as a separate program that must not stay up next to others of its kind."""
        return self._config.deploy == "alternate" and self._engine.takes_program(arm.config)

    def begin(self, arms: Sequence[ResolvedArm]) -> set[str]:
        """Starts the programs of these arms at the same time, without waiting for them; the labels of those. None of
        them where one may not start beside others: it would measure the memory that they take."""
        programs = [arm for arm in arms if self._engine.takes_program(arm.config)]
        if len(programs) < 2 or not all(self._engine.can_begin(arm) for arm in programs):
            return set()
        for arm in programs:
            with suppress(RuntimeError):  # it cannot be run, which is said at its turn
                self._engine.begin(arm, self._config, self.logs.path(arm.config.label))
        return {arm.config.label for arm in programs}

    def of(self, arm: ResolvedArm) -> Deployment:
        """Raises what `Engine.deploy` raises. Programs that must not stay up next to it are stopped. A NotReadyError is
        raised again immediately: a program that did not become ready is not waited for a second time."""
        label = arm.config.label
        if label in self._never_ready:
            raise NotReadyError(self._never_ready[label])
        if label not in self._open:
            if self.starts_at_its_turn(arm):
                self._end_programs()
            try:
                self._start(arm)
            except NotReadyError as error:
                self._never_ready[label] = str(error)
                raise
        return self._open[label][1]

    def _start(self, arm: ResolvedArm) -> None:
        label = arm.config.label
        context = self._engine.deploy(arm, self._config, self.logs.path(label))
        self._open[label] = context, context.__enter__()
        self._programs |= {label} if self.starts_at_its_turn(arm) else set()

    def _end_programs(self) -> None:
        for label in self._programs:
            self.drop(label)
        self._programs = set()

    def drop(self, label: str) -> None:
        """Ends a deployment, if there is one, and frees its memory. Its log is kept."""
        if self._end(label):
            gc.collect()

    def _end(self, label: str) -> bool:
        """Ends a deployment; returns whether there was one."""
        context, _ = self._open.pop(label, (None, None))
        if context is None:
            return False
        context.__exit__(None, None, None)
        self.logs.keep(label)
        return True

    def close(self) -> None:
        """Closes all deployments, even if one fails to close; memory is collected once, which takes 0.2 s."""
        with ExitStack() as ends:
            ends.callback(self.logs.close)
            ends.callback(self._engine.close)
            ends.callback(gc.collect)
            for label in self.labels:
                ends.callback(self._end, label)
