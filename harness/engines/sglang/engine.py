"""SGLang as an engine of a run: each arm is a child that the Python with SGLang runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specbench.harness.engines.base import Capabilities, Deployment, Model, OpenProgress, naming
from specbench.harness.engines.child.begun import BegunChildren, Started
from specbench.harness.engines.child.deployment import ChildDeployment
from specbench.harness.engines.child.interpreter import installed, interpreter, named
from specbench.harness.engines.child.opened import Opened
from specbench.harness.engines.openai.dialects import SGLANG
from specbench.harness.engines.process.managed import managed
from specbench.harness.engines.process.waiting import Waiting
from specbench.harness.engines.served.model import ServedModel, open_model
from specbench.harness.engines.served.users_server import UsersArm, facts_of_server, users_arm
from specbench.harness.engines.source.checkout import Revision, Revisions
from specbench.harness.engines.source.laid_out import opening_child
from specbench.harness.engines.traced import TRACED
from specbench.harness.registry import EngineKind
from specbench.harness.spec.arm import ArmConfig, ArmSetup
from specbench.harness.spec.conditions import Conditions, RunConfig
from specbench.harness.store.arm_record import Fact
from specbench.harness.store.codec import read_object
from specbench.workloads.assets.shipped_heads import PREFIX, shipped_head, shipped_head_for

from .drafts import draft_weights
from .mapping import CONTEXT_SLACK, SERVER, Mapped, Weights, mapped, with_weights
from .methods import Method
from .server import server_command

PYTHON_VARIABLE = "SPECBENCH_SGLANG_PYTHON"
_CHILD = Path(__file__).with_name("child.py")
_OUTSIDE = "SGLang's scheduler is a separate process, which sends tokens and counters after each step"
_UNKNOWN = {fact: _OUTSIDE for fact in (Fact.DEVICE_TIMES, Fact.PHASES, Fact.GRAPHS, Fact.SYNCS, Fact.PREEMPTIONS)}
_VARIES = "SGLang does not report the number of drafts of a step if that varies"


@dataclass(frozen=True, kw_only=True, slots=True)
class SglangArm:
    """`python`: the interpreter; `version`: of SGLang there; `revision`: of its checkout, None: as it is installed."""

    config: ArmConfig
    mapped: Mapped
    python: Path
    version: str
    notes: tuple[str, ...]
    revision: Revision | None = None
    graph_parts: None = None
    footprint: int = 0

    @property
    def is_server(self) -> bool:
        """engine.server=yes: started as a server and asked over HTTP, in place of a child in process."""
        return self.config.own_config.get(SERVER) == "yes"

    @property
    def capabilities(self) -> Capabilities:
        if self.is_server:
            return Capabilities(facts_of_server(SGLANG))
        varies = self.mapped.method.algorithm == "DSPARK" or self.mapped.server_args.get("speculative_adaptive")
        return Capabilities({**_UNKNOWN, Fact.ACCEPTANCE: _VARIES} if varies else _UNKNOWN)

    def setup(self) -> ArmSetup:
        asked = self.config.engine
        return ArmSetup(
            graph=asked.get("graph"),
            attention=asked.get("attention"),
            attention_drafter=asked.get("attention_drafter"),
            num_drafts=self.mapped.method.num_drafts,
            options={**self.config.options, **{f"engine.{k}": v for k, v in self.config.own_config.items()}},
            acceptance=self.mapped.acceptance,
            engine="sglang",
            driven="HTTP" if self.is_server else "in process",
        )


@dataclass(slots=True)
class SglangEngine(EngineKind):
    takes_program = True

    name: str = field(default="sglang", init=False)
    _served: ServedModel | None = field(default=None, init=False)
    _progress: OpenProgress | None = field(default=None, init=False)
    _begun: BegunChildren = field(default_factory=BegunChildren, init=False)
    _found: dict[str, tuple[Path, str]] = field(default_factory=dict, init=False)
    _revisions: Revisions = field(default_factory=lambda: Revisions("sglang"), init=False)

    def resolve(self, arm: ArmConfig, conditions: Conditions) -> SglangArm | UsersArm:
        if "url" in arm.engine:
            raise ValueError(
                f"url: {arm.engine['url']!r} is not allowed; it is started here; use engine openai for an address"
            )
        conditions.edits.require_only(SGLANG.edits, SGLANG.name)
        if conditions.stop:
            raise ValueError(
                f"stop: {conditions.stop[0]!r} is not allowed; SGLang in process is not given strings here"
            )
        if conditions.ignore_eos and conditions.stop_token_ids:
            raise ValueError(
                f"stop_token_id: {conditions.stop_token_ids[0]} is not allowed with --ignore-eos, which makes SGLang "
                "ignore stop ids"
            )
        if (of_user := users_arm(arm, conditions, SGLANG, self.name)) is not None:
            return of_user
        found = mapped(arm, conditions)
        python, version = self._find(arm)
        revision = self._revisions.of(arm, python)
        notes = (*found.notes, *([revision.note] if revision else []))
        resolved = SglangArm(config=arm, mapped=found, python=python, version=version, notes=notes, revision=revision)
        if resolved.is_server and conditions.load_format == "dummy":
            raise ValueError(f"engine.{SERVER}: 'yes' is not allowed with --load-format dummy; it needs a tokenizer")
        return resolved

    def open(self, config: RunConfig, progress: OpenProgress) -> tuple[Model, list[SglangArm | UsersArm]]:
        arms = [self._resolved(arm, config) for arm in config.arms]
        self._served, self._progress = open_model(config, progress), progress
        model = self._served.model
        return model, [arm if isinstance(arm, UsersArm) else self._with_head(arm, config, model) for arm in arms]

    @contextmanager
    def deploy(self, arm: SglangArm | UsersArm, config: RunConfig, log: Path) -> Iterator[Deployment]:
        served, progress = self._served, self._progress
        assert served is not None and progress is not None, "the engine was not opened"
        if isinstance(arm, UsersArm):
            with arm.deployed(served, config, progress.say, log) as deployment:
                yield deployment
            return
        model = served.model
        ignores_eos = config.ignore_eos or not (model.eos_token_ids or config.stop_token_ids)
        arguments = self._arguments(arm, config)
        if arm.is_server:
            command = server_command(arm.python, arguments, arm.mapped.environment)
            path, asked = str(served.path), replace(config, ignore_eos=ignores_eos)
            with managed(command, arm.config, asked, path=path, model=model, say=progress.say, log=log) as deployment:
                yield deployment
            return
        with self._begun.taken(arm.config.label, self._child(arm, config, log)) as child:
            waiting = Waiting(progress.say, f"{arm.config.label}: waiting for {SGLANG.name}", log)
            opened = Opened.of(child.opened(config.engine_startup_timeout, waiting))
            notes = contradictions(arguments, opened.config)
            source = self._revisions.facts(arm.revision, arm.python)
            opened = replace(opened, config={**opened.config, "source": source}, notes=(*opened.notes, *notes))
            if not ignores_eos:
                _check_ends(opened, model, config)
            yield ChildDeployment(
                child,
                opened,
                capabilities=arm.capabilities,
                model=model,
                batch_size=config.max_concurrency,
                max_model_len=min(config.max_model_len, _longest(arguments, arm.mapped.method)),
                ignore_eos=ignores_eos,
                num_drafts=arm.mapped.method.num_drafts,
            )

    def can_begin(self, arm: SglangArm | UsersArm) -> bool:
        """A child: its pool of keys and values is set beforehand (mapping.py)."""
        return isinstance(arm, SglangArm) and not arm.is_server

    def begin(self, arm: SglangArm | UsersArm, config: RunConfig, log: Path) -> None:
        assert isinstance(arm, SglangArm), "servers are not begun"
        self._begun.begin(arm.config.label, self._child(arm, config, log))

    def close(self) -> None:
        self._begun.close()

    def _child(self, arm: SglangArm, config: RunConfig, log: Path) -> Started:
        traced = {TRACED: os.environ[TRACED]} if TRACED in os.environ else {}
        command, environment = [str(arm.python), str(_CHILD)], {**arm.mapped.environment, **traced}
        return opening_child(command, environment, arm.revision, self._arguments(arm, config), log)

    def _arguments(self, arm: SglangArm, config: RunConfig) -> dict[str, object]:
        return with_weights(arm.mapped, self._weights(arm, config), config.max_model_len)

    def _find(self, arm: ArmConfig) -> tuple[Path, str]:
        """The interpreter that has SGLang, and SGLang's version."""
        given = named(arm, PYTHON_VARIABLE, "sglang", "SGLang")
        if given not in self._found:
            python = interpreter(given)
            self._found[given] = python, installed(python, ["sglang"])
        return self._found[given]

    def _weights(self, arm: SglangArm, config: RunConfig) -> Weights:
        assert self._served is not None
        max_position = read_object(self._served.path / "config.json").get("max_position_embeddings")
        draft, is_random = draft_weights(arm.config.strategy, arm.mapped.method, config)
        return Weights(
            model=self._served.path,
            max_position=max_position if isinstance(max_position, int) else config.max_model_len,
            dtype=self._served.model.described.dtype or "auto",
            is_random=config.load_format == "dummy",
            draft=draft,
            draft_is_random=is_random,
        )

    def _resolved(self, arm: ArmConfig, config: RunConfig) -> SglangArm | UsersArm:
        with naming(arm):
            return self.resolve(arm, config)

    def _with_head(self, arm: SglangArm, config: RunConfig, model: Model) -> SglangArm:
        """An arm that needs a head and names none gets the shipped head for this target."""
        sha256 = model.described.sha256 or ""
        own = shipped_head_for(sha256, model.described.source or "")
        c = arm.config
        if own is not None and arm.mapped.method.is_head and not c.options.get("head"):
            c = replace(c, options={**c.options, "head": own.option})
            found = self._resolved(c, config)
            assert isinstance(found, SglangArm), "it has no command"
            arm = found
        with naming(c):
            draft_weights(c.strategy, arm.mapped.method, config)  # before anything is started
            if c.options.get("head", "").startswith(PREFIX):
                notes = shipped_head(c.options["head"]).notes(sha256, config.workload.names)
                arm = replace(arm, notes=(*arm.notes, *notes))
        return arm


def _longest(arguments: Mapping[str, Any], method: Method) -> int:
    """Maximum tokens of a request, limited by the model's positions."""
    return int(arguments["context_length"]) - CONTEXT_SLACK - method.num_reserved


def contradictions(requested: Mapping[str, object], resolved: Mapping[str, object]) -> Iterator[str]:
    """What SGLang resolved differently from the request."""
    for key, value in requested.items():
        if key in resolved and resolved[key] != value:
            yield f"{key}: {value} was requested, SGLang runs {resolved[key]}"


def _check_ends(opened: Opened, model: Model, config: RunConfig) -> None:
    """Engines that end an answer at different tokens do not get the same task, so this is an error."""
    own = opened.config["eos_token_ids"]
    assert isinstance(own, list), "the child tells a list"
    further = set(own) - {*model.eos_token_ids, *config.stop_token_ids}
    if further:
        raise ValueError(
            f"stop_token_id: SGLang also ends answers at {sorted(further)}, as the model's configuration says; name "
            "them with --stop-token-id, or give --ignore-eos"
        )
