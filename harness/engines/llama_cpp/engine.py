"""llama.cpp: a llama-server for each arm, started here and queried over HTTP.

specbench run --engine llama.cpp --engine-python .engines/llama.cpp -s no-spec -s eagle:k=4
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from specbench.harness.engines.base import Capabilities, Deployment, Model, OpenProgress, naming
from specbench.harness.engines.llama_cpp import command_line
from specbench.harness.engines.llama_cpp.command_line import Speculation
from specbench.harness.engines.llama_cpp.installed import Installed, find
from specbench.harness.engines.openai.dialects import LLAMA_CPP
from specbench.harness.engines.process.managed import managed
from specbench.harness.engines.process.server_command import ServerCommand, built_command
from specbench.harness.engines.served.model import ServedModel, open_model
from specbench.harness.engines.served.users_server import UsersArm, facts_of_server, users_arm
from specbench.harness.registry import EngineKind
from specbench.harness.spec.arm import ArmConfig, ArmSetup
from specbench.harness.spec.conditions import Conditions, RunConfig
from specbench.harness.spec.devices import pick_device
from specbench.harness.store.arm_record import FORCED
from specbench.workloads.assets.model_source import resolve_model
from specbench.workloads.assets.shipped_heads import PREFIX, shipped_folder, shipped_head, shipped_head_for

NAME = "llama.cpp"


@dataclass(frozen=True, kw_only=True, slots=True)
class LlamaCppArm:
    """`draft`: a directory or .gguf, once located. `found`: further notes for the reader of its row."""

    config: ArmConfig
    installed: Installed
    speculation: Speculation | None
    draft: Path | None = None
    found: tuple[str, ...] = ()
    capabilities: Capabilities = field(default_factory=lambda: Capabilities(facts_of_server(LLAMA_CPP)))
    graph_parts: None = None
    footprint: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        forced = self._acceptance.partition(":")[2]
        return (*([f"{FORCED} ({forced})"] if forced else []), *self.found)

    @property
    def _acceptance(self) -> str:
        return self.config.engine.get("acceptance", "real") if self.speculation else "real"

    def setup(self) -> ArmSetup:
        c = self.config
        return ArmSetup(
            num_drafts=self.speculation.num_drafts if self.speculation else 0,
            options={**c.options, **{f"engine.{key}": value for key, value in c.own_config.items()}},
            acceptance=self._acceptance,
            engine=NAME,
            driven="HTTP",
        )


@dataclass(slots=True)
class LlamaCppEngine(EngineKind):
    takes_program = True
    name: str = field(default=NAME, init=False)
    _served: ServedModel | None = field(default=None, init=False)
    _progress: OpenProgress | None = field(default=None, init=False)

    def resolve(self, arm: ArmConfig, conditions: Conditions) -> LlamaCppArm | UsersArm:
        if conditions.load_format != "auto":
            raise ValueError(f"load_format: {conditions.load_format} is not allowed; llama.cpp needs weights")
        conditions.edits.require_only(LLAMA_CPP.edits, LLAMA_CPP.name)
        if (of_user := users_arm(arm, conditions, LLAMA_CPP, NAME)) is not None:
            return of_user
        command_line.refuse(arm)
        spoken = command_line.speculation(arm)
        return LlamaCppArm(config=arm, installed=find(arm.engine.get("python", "")), speculation=spoken)

    def open(self, config: RunConfig, progress: OpenProgress) -> tuple[Model, list[LlamaCppArm | UsersArm]]:
        self._progress = progress
        found = []
        for arm in config.arms:
            with naming(arm):
                found.append(self.resolve(arm, config))
        self._served = open_model(config, progress)
        model = self._served.model
        return model, [arm if isinstance(arm, UsersArm) else self._with_draft(arm, config) for arm in found]

    @contextmanager
    def deploy(self, arm: LlamaCppArm | UsersArm, config: RunConfig, log: Path) -> Iterator[Deployment]:
        assert self._served is not None and self._progress is not None, "the engine was not opened"
        if isinstance(arm, UsersArm):
            with arm.deployed(self._served, config, self._progress.say, log) as deployment:
                yield deployment
            return
        command, path = self._command(arm, config), str(self._served.path)
        with managed(
            command, arm.config, config, path=path, model=self._served.model, say=self._progress.say, log=log
        ) as deployment:
            yield deployment

    def _command(self, arm: LlamaCppArm, config: RunConfig) -> ServerCommand:
        assert self._served is not None
        dtype = self._served.model.described.dtype or "auto"
        given = Path(config.model).expanduser()
        model = given if given.suffix == ".gguf" else arm.installed.as_gguf(self._served.path, dtype)
        draft = arm.draft
        if draft is not None:
            target = self._served.path if arm.config.strategy != "draft-model" else None
            draft = arm.installed.as_gguf(draft, dtype, target)
        words = command_line.words(
            arm.config,
            arm.speculation,
            config,
            binary=arm.installed.binary,
            model=model,
            draft=draft,
            dtype=dtype,
            is_cpu=pick_device(config.device).type == "cpu",
        )
        return built_command(NAME, words)

    def _with_draft(self, arm: LlamaCppArm, config: RunConfig) -> LlamaCppArm:
        """The head or drafter that the arm names; if it names none, the shipped head."""
        spoken = arm.speculation
        if spoken is None or not spoken.needs_draft:
            return arm
        with naming(arm.config):
            return self._found_draft(arm, spoken.draft, config)

    def _found_draft(self, arm: LlamaCppArm, given: str, config: RunConfig) -> LlamaCppArm:
        assert self._served is not None and self._progress is not None
        target = self._served.model.described
        if arm.config.strategy == "eagle" and not given:
            own = shipped_head_for(target.sha256 or "", target.source or "")
            given = own.option if own is not None else ""
        if not given:
            raise ValueError("head: is missing; give head=DIR, an EAGLE-3 checkpoint for this model, or its .gguf")
        if given.startswith(PREFIX):
            notes = shipped_head(given).notes(target.sha256 or "", config.workload.names)
            return replace(arm, draft=shipped_folder(given), found=tuple(notes))
        path = Path(given).expanduser()
        if not path.exists() and arm.config.strategy == "draft-model":
            path = resolve_model(given, progress=self._progress.asset).path
        if not path.exists():
            raise ValueError(f"head: {given!r} does not exist; give a directory or a .gguf file")
        return replace(arm, draft=path)
