"""An arm whose server the user's own command line starts: engine vllm, sglang or llama.cpp with `command=`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from specbench.harness.engines.base import Capabilities, Deployment
from specbench.harness.engines.openai.dialects import Dialect
from specbench.harness.engines.openai.endpoint import Endpoint
from specbench.harness.engines.openai.facts import unknown_facts
from specbench.harness.engines.openai.server import Server
from specbench.harness.engines.process.managed import managed
from specbench.harness.engines.process.server_command import ServerCommand, users_command
from specbench.harness.engines.served.asked import DEFAULTS
from specbench.harness.engines.served.model import ServedModel
from specbench.harness.spec.arm import ArmConfig, ArmSetup
from specbench.harness.spec.conditions import Conditions, RunConfig
from specbench.harness.store.arm_record import Fact


def facts_of_server(dialect: Dialect) -> dict[Fact, str]:
    """What is unknown for any server of this kind, before it is queried."""
    return unknown_facts(Server(endpoint=Endpoint("http://127.0.0.1/v1"), dialect=dialect), has_ids=dialect.takes_ids)


@dataclass(frozen=True, kw_only=True, slots=True)
class UsersArm:
    """`engine`: its name. The strategy is the user's name for the command."""

    config: ArmConfig
    engine: str
    command: ServerCommand
    capabilities: Capabilities
    notes: tuple[str, ...] = ("its server was started by the user's command",)
    graph_parts: None = None
    footprint: int = 0

    def setup(self) -> ArmSetup:
        return ArmSetup(options=self.config.options, engine=self.engine, driven="HTTP")

    @contextmanager
    def deployed(
        self, served: ServedModel, config: RunConfig, say: Callable[[str], None], log: Path
    ) -> Iterator[Deployment]:
        """Raises as `managed` does: ValueError too for a server that contradicts the strategy."""
        path, model = str(served.path), served.model
        with managed(self.command, self.config, config, path=path, model=model, say=say, log=log) as deployment:
            yield deployment


def users_arm(
    arm: ArmConfig, conditions: Conditions, dialect: Dialect, engine: str, environment: Mapping[str, str] | None = None
) -> UsersArm | None:
    """None if the arm has no command. ValueError for a switch next to the command, which would have no effect."""
    text = arm.engine.get("command")
    if text is None:
        return None
    if conditions.load_format != "auto":
        raise ValueError(f"load_format: {conditions.load_format} is not allowed with a server's command")
    for key, value in arm.engine.items():
        if key not in ("command", "python") and value != DEFAULTS.get(key):
            raise ValueError(
                f"{key}: {value!r} is not allowed together with command; write {engine}'s option into the command"
            )
    return UsersArm(
        config=arm,
        engine=engine,
        command=users_command(engine, text, environment),
        capabilities=Capabilities(facts_of_server(dialect)),
    )
