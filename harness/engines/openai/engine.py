"""The engine `openai`: servers that are already running, each an arm of the table.

specbench run --engine openai --base-url http://127.0.0.1:8000/v1
specbench run --engine openai -s as-served:url=http://A:8000/v1 -s as-served:url=http://B:8000/v1
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from specbench.harness.engines.base import Capabilities, Model, OpenProgress, naming
from specbench.harness.registry import EngineKind
from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.conditions import Conditions, RunConfig
from specbench.harness.store.inputs_record import ModelRecord
from specbench.workloads.assets.model_source import resolve_model
from specbench.workloads.tokenizer import ModelTokenizer, load_tokenizer

from .arms import OpenAIArm, notes_of, parse_openai_arm
from .asking import Asking
from .deployment import HttpDeployment
from .endpoint import Endpoint
from .facts import unknown_facts
from .lengths import ByteGroups
from .server import AS_SERVED, Server, identify, identify_replicas

_ANY_MODEL = Conditions.model  # the default: the user named none


@dataclass(slots=True)
class OpenAIEngine(EngineKind):
    takes_program: ClassVar[bool] = True
    name: str = field(default="openai", init=False)
    _tokenizer: ModelTokenizer | None = field(default=None, init=False)

    @staticmethod
    def default_arms(has_head: bool) -> list[str]:
        return [AS_SERVED]

    def resolve(self, arm: ArmConfig, conditions: Conditions) -> OpenAIArm:
        return parse_openai_arm(arm, conditions.api_key_env)

    def open(self, config: RunConfig, progress: OpenProgress) -> tuple[Model, list[OpenAIArm]]:
        if config.load_format != "auto":
            raise ValueError(f"load_format: {config.load_format} is not allowed; a server has its own weights")
        arms = []
        for each in config.arms:
            with naming(each):
                arms.append(self.resolve(each, config))
        if config.tokenizer is not None:
            progress.say(f"finding the tokenizer {config.tokenizer}")
            self._tokenizer = load_tokenizer(resolve_model(config.tokenizer, progress=progress.asset).path)
        servers: dict[tuple[Endpoint, ...], Server] = {}
        for arm in arms:
            if (at := (arm.endpoint, *arm.replicas)) not in servers:
                progress.say(f"asking {' '.join(each.base_url for each in arm.replicas or at)}")
                servers[at] = identify_replicas(arm.endpoint, arm.replicas) if arm.replicas else identify(arm.endpoint)
        identified = [self._identified(arm, servers[(arm.endpoint, *arm.replicas)], config) for arm in arms]
        return self._model(identified[0]), identified

    @contextmanager
    def deploy(self, arm: OpenAIArm, config: RunConfig, log: Path) -> Iterator[HttpDeployment]:
        assert arm.server is not None and arm.asking is not None, "the engine was not opened"
        tokenizer = self._tokenizer
        yield HttpDeployment(
            server=arm.server,
            asking=arm.asking,
            batch_size=config.max_concurrency,
            ignore_eos=config.ignore_eos,
            num_clients=config.num_clients,
            count=None if tokenizer is None else lambda text: len(tokenizer.encode_raw(text)),
        )

    def _identified(self, arm: OpenAIArm, server: Server, config: RunConfig) -> OpenAIArm:
        """With what its server says."""
        with naming(arm.config):
            server.check_label(arm.config.strategy)
            model = server.model(config.model, _ANY_MODEL)
            if arm.prompt == "ids" and self._tokenizer is None:
                raise ValueError("engine.prompt: ids needs --tokenizer")
        may_have_ids = self._tokenizer is not None and arm.api == "completions"
        as_ids = may_have_ids and (arm.prompt == "ids" or (arm.prompt == "auto" and server.dialect.takes_ids))
        eos_ids = self._tokenizer.eos_ids if self._tokenizer else ()
        return replace(
            arm,
            server=server,
            asking=Asking(dialect=server.dialect, model=model, api=arm.api, as_ids=as_ids, eos_ids=eos_ids),
            capabilities=Capabilities(unknown_facts(server, has_ids=as_ids)),
            notes=notes_of(arm, server, as_ids=as_ids, has_tokenizer=self._tokenizer is not None),
        )

    def _model(self, arm: OpenAIArm) -> Model:
        assert arm.asking is not None
        source = f"served at {arm.endpoint.base_url}"
        described = ModelRecord(name=arm.asking.model, source=source, sha256="", synthetic=False)
        tokenizer = self._tokenizer or ByteGroups()
        return Model(
            described=described,
            vocab_size=tokenizer.vocab_size,
            tokenizer=tokenizer,
            eos_token_ids=self._tokenizer.eos_ids if self._tokenizer else (),
            has_token_ids=self._tokenizer is not None,
        )
