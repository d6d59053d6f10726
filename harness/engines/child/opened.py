"""What the child's engine reports about itself once it is up, as the facts of an arm."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from specbench.harness.engines.child.wire import Facts
from specbench.harness.store.arm_record import EngineFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """What an engine reports about itself once it is up (wire.py). `config`: its resolved configuration as JSON."""

    version: str | None
    graph_mode: str | None
    backend: str | None
    hardware: str | None
    config: Mapping[str, object]
    notes: tuple[str, ...]

    @staticmethod
    def of(facts: Facts) -> Opened:
        return Opened(
            version=facts["version"],
            graph_mode=facts["graph_mode"],
            backend=facts["backend"],
            hardware=facts["hardware"],
            config=facts["config"],
            notes=tuple(facts["notes"]),
        )

    @property
    def facts(self) -> EngineFacts:
        return EngineFacts(
            version=self.version,
            graph_mode=self.graph_mode,
            backend=self.backend,
            hardware=self.hardware,
            config=dict(_flat(self.config)),
            notes=self.notes,
        )


def _flat(config: Mapping[str, object], outer: str = "") -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{outer}{key}.")
        elif value is not None:
            yield f"{outer}{key}", value if isinstance(value, str) else json.dumps(value)
