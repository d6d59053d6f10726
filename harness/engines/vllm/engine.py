"""vLLM in process: a child that its own Python runs drives its step loop."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specbench.harness.engines.base import Capabilities, Deployment, Model, OpenProgress, naming
from specbench.harness.engines.child.begun import BegunChildren, Started
from specbench.harness.engines.child.deployment import ChildDeployment
from specbench.harness.engines.child.interpreter import interpreter, named
from specbench.harness.engines.child.opened import Opened
from specbench.harness.engines.openai.dialects import VLLM
from specbench.harness.engines.process.managed import managed
from specbench.harness.engines.process.waiting import Waiting
from specbench.harness.engines.served.model import ServedModel, open_model, random_head
from specbench.harness.engines.served.users_server import UsersArm, users_arm
from specbench.harness.engines.source.checkout import Revisions
from specbench.harness.engines.source.laid_out import opening_child
from specbench.harness.engines.vllm import arm as arms
from specbench.harness.engines.vllm import switches
from specbench.harness.engines.vllm.arm import VllmArm
from specbench.harness.engines.vllm.installed import METHODS_FILE, Installed, find, methods, minor_of
from specbench.harness.engines.vllm.server import SERVER_ENVIRONMENT, server_command
from specbench.harness.registry import EngineKind
from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.conditions import Conditions, RunConfig
from specbench.harness.store.codec import read_object
from specbench.workloads.assets.head_source import head_folder
from specbench.workloads.assets.model_source import resolve_model
from specbench.workloads.assets.shipped_heads import PREFIX, shipped_folder, shipped_head, shipped_head_for

CHILD = Path(__file__).with_name("child.py")
PYTHON_VARIABLE = "SPECBENCH_VLLM_PYTHON"
_EAGLE1 = "EagleLlamaForCausalLM"  # of a head, as vLLM names it
_KV_MEMORY = "kv_cache_memory_bytes"  # of engine.KEY
_GPU_SHARE = 0.85  # of a GPU's memory, for all arms of other engines together
_BESIDE_OURS = 0.6  # the same, if our own engine has arms, too
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the scheduler in the child itself, where it can be observed
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
# Defaults: two engines on one CPU must not both bind its cores, nor take half its memory each.
_CPU_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


@dataclass(slots=True)
class VllmEngine(EngineKind):
    """`vllm`, managed in process: one child a deployment; with engine.server=yes a server, as with `command=`."""

    takes_program = True
    name: str = field(default="vllm", init=False)
    _installed: dict[str, Installed] = field(default_factory=dict, init=False)
    _revisions: Revisions = field(default_factory=lambda: Revisions("vllm"), init=False)
    _served: ServedModel | None = field(default=None, init=False)
    _progress: OpenProgress | None = field(default=None, init=False)
    _begun: BegunChildren = field(default_factory=BegunChildren, init=False)

    def resolve(self, arm: ArmConfig, conditions: Conditions) -> VllmArm | UsersArm:
        conditions.edits.require_only(VLLM.edits, VLLM.name)
        if (of_user := users_arm(arm, conditions, VLLM, self.name, SERVER_ENVIRONMENT)) is not None:
            return of_user
        installed = self._find(arm)
        if conditions.device != "auto" and installed.is_for_cpu != (conditions.device == "cpu"):
            built = "a CPU" if installed.is_for_cpu else "a GPU"
            raise ValueError(f"device: {conditions.device!r} is not allowed; vLLM {installed.version} is for {built}")
        revision = self._revisions.of(arm, installed.python)
        if revision is not None:
            own = methods(installed.python, revision.ref, revision.text(METHODS_FILE))
            installed = replace(installed, methods=own)
        resolved = arms.resolve(arm, installed, revision)
        if resolved.is_server and conditions.load_format == "dummy":
            raise ValueError(
                f"engine.{arms.SERVER}: 'yes' is not allowed with --load-format dummy; it needs a tokenizer"
            )
        if installed.is_for_cpu and "rejection_sample_method" in (resolved.speculative or {}):
            raise ValueError(f"acceptance: {arm.engine['acceptance']!r} is not allowed; vLLM for a CPU cannot force it")
        return replace(resolved, found=("synthetic weights",)) if conditions.load_format == "dummy" else resolved

    def open(self, config: RunConfig, progress: OpenProgress) -> tuple[Model, list[VllmArm | UsersArm]]:
        resolved = []
        for arm in config.arms:
            with naming(arm):
                resolved.append(self.resolve(arm, config))
        self._served, self._progress = open_model(config, progress), progress
        return self._served.model, [
            arm if isinstance(arm, UsersArm) else self._with_drafter(arm, config, progress) for arm in resolved
        ]

    @contextmanager
    def deploy(self, arm: VllmArm | UsersArm, config: RunConfig, log: Path) -> Iterator[Deployment]:
        served, progress = self._served, self._progress
        assert served is not None and progress is not None, "the engine was not opened"
        if isinstance(arm, UsersArm):
            with arm.deployed(served, config, progress.say, log) as deployment:
                yield deployment
            return
        args = self._arguments(arm, config)
        if arm.is_server:
            command = server_command(arm.installed.python, args, _of_cpu(arm), minor_of(arm.installed.version))
            path, say = str(served.path), progress.say
            with managed(command, arm.config, config, path=path, model=served.model, say=say, log=log) as deployment:
                yield deployment
            return
        with self._begun.taken(arm.config.label, self._child(arm, config, log)) as child:
            waiting = Waiting(progress.say, f"{arm.config.label}: waiting for {VLLM.name}", log)
            opened = Opened.of(child.opened(config.engine_startup_timeout, waiting))
            notes = switches.contradictions(args, opened.config, opened.backend)
            source = self._revisions.facts(arm.revision, arm.installed.python)
            yield ChildDeployment(
                child,
                replace(opened, config={**opened.config, "source": source}, notes=(*opened.notes, *notes)),
                capabilities=Capabilities(arms.UNKNOWN),
                model=served.model,
                batch_size=config.max_concurrency,
                max_model_len=config.max_model_len,
                ignore_eos=config.ignore_eos,
                num_drafts=num_drafts(opened),
            )

    def can_begin(self, arm: VllmArm | UsersArm) -> bool:
        """Where the memory of its keys and values is given. Else vLLM measures what is free while it starts, and takes
        for its own what others take meanwhile."""
        return isinstance(arm, VllmArm) and not arm.is_server and _KV_MEMORY in arm.config.own_config

    def begin(self, arm: VllmArm | UsersArm, config: RunConfig, log: Path) -> None:
        assert isinstance(arm, VllmArm), "servers are not begun"
        self._begun.begin(arm.config.label, self._child(arm, config, log))

    def close(self) -> None:
        self._begun.close()

    def _child(self, arm: VllmArm, config: RunConfig, log: Path) -> Started:
        command, environment = [str(arm.installed.python), str(CHILD)], {**_ENVIRONMENT, **_of_cpu(arm)}
        return opening_child(command, environment, arm.revision, self._arguments(arm, config), log)

    def _arguments(self, arm: VllmArm, config: RunConfig) -> dict[str, Any]:
        assert self._served is not None
        return arms.engine_args(
            arm,
            config,
            model=self._served.path,
            dtype=self._served.model.described.dtype or "auto",
            is_cpu=arm.installed.is_for_cpu,
            gpu_share=_share(config),
        )

    def _find(self, arm: ArmConfig) -> Installed:
        given = named(arm, PYTHON_VARIABLE, "vllm", "vLLM")
        if given not in self._installed:
            self._installed[given] = find(interpreter(given))
        return self._installed[given]

    def _with_drafter(self, arm: VllmArm, config: RunConfig, progress: OpenProgress) -> VllmArm:
        """The head or drafter that the arm names, as a directory; if it names none, the shipped one for this target."""
        if arm.speculative is None or arm.config.strategy not in ("eagle", "draft-model"):
            return arm
        given = arm.speculative.get("model")
        with naming(arm.config):
            if arm.config.strategy == "draft-model":
                found = resolve_model(str(given), progress=progress.asset)
                return arm.with_head(found.path, "draft_model", ())
            return self._with_head(arm, given, config)

    def _with_head(self, arm: VllmArm, given: str | None, config: RunConfig) -> VllmArm:
        assert self._served is not None
        target = self._served.model.described
        if not given:
            own = shipped_head_for(target.sha256 or "", target.source or "")
            if own is None:
                raise ValueError(
                    "head: is missing; give head=DIR, an EAGLE checkpoint for this model, or head=random or "
                    "random-eagle1 with dummy weights"
                )
            given = own.option
        if given.startswith(PREFIX):
            notes = shipped_head(given).notes(target.sha256 or "", config.workload.names)
            return arm.with_head(shipped_folder(given), "eagle3", tuple(notes))
        path = random_head(given, config, _EAGLE1) or head_folder(given)
        return arm.with_head(path, eagle_method(path), ())


def num_drafts(opened: Opened) -> int:
    """As vLLM resolved it."""
    speculative = opened.config["speculative_config"]
    return int(speculative["num_speculative_tokens"]) if isinstance(speculative, dict) else 0


def eagle_method(head: Path) -> str:
    """eagle3 or eagle, by the architecture in the head's config.json. ValueError if there is none."""
    if not (head / "config.json").is_file():
        raise ValueError(f"head: {str(head)!r} is not allowed; give a directory with config.json and weights")
    architectures = str(read_object(head / "config.json").get("architectures"))
    return "eagle3" if "eagle3" in architectures.lower() else "eagle"


def _of_cpu(arm: VllmArm) -> dict[str, str]:
    return {k: os.environ.get(k, v) for k, v in _CPU_ENVIRONMENT.items()} if arm.installed.is_for_cpu else {}


def _share(config: RunConfig) -> float:
    """Each arm's share of a GPU's memory. Alternating arms do not share it."""
    names = [arm.engine_name or config.engine for arm in config.arms]
    num_programs = sum(name != "specbench" for name in names)
    whole = _GPU_SHARE if num_programs == len(names) else _BESIDE_OURS
    return whole if config.deploy == "alternate" else whole / max(1, num_programs)
