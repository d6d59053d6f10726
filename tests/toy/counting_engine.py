"""An engine in a child that gives token ids and scores, without weights of ours: `counting/ngram:k=4,fault=wrong`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from specbench.harness.engines.base import Capabilities, Model, OpenProgress
from specbench.harness.engines.child.deployment import ChildDeployment
from specbench.harness.engines.child.opened import Opened
from specbench.harness.engines.child.process import ChildProcess
from specbench.harness.registry import EngineKind
from specbench.harness.spec.arm import ArmConfig, ArmSetup
from specbench.harness.spec.conditions import Conditions, RunConfig
from specbench.harness.store.arm_record import Fact
from specbench.harness.store.inputs_record import ModelRecord
from toy import counting_child

NO_SCORES = "it counts, it does not weigh"


class Letters:
    """Token 97 is `a`."""

    vocab_size, bos_id, has_chat_template = counting_child.VOCAB, None, False

    def encode(self, text: str) -> list[int]:
        return [ord(letter) % self.vocab_size for letter in text]

    encode_raw = encode

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))

    def apply_chat_template(self, messages: list[dict[str, str]]) -> list[int]:
        return self.encode(self.render_chat(messages))

    def render_chat(self, messages: list[dict[str, str]]) -> str:
        raise ValueError("counting has no chat template")


@dataclass(frozen=True)
class CountingArm:
    config: ArmConfig
    notes: tuple[str, ...] = ()
    graph_parts: None = None
    footprint: int = 0

    @property
    def capabilities(self) -> Capabilities:
        unknown = {Fact.PHASES: "not told"}
        if self.config.options.get("fault") == "untold":
            unknown |= {Fact.SYNCS: "not told", Fact.GRAPHS: "not told"}
        if "scores" in self.config.options:
            unknown[Fact.SCORES] = NO_SCORES
        return Capabilities(unknown)

    def setup(self) -> ArmSetup:
        return ArmSetup(options=dict(self.config.options), engine="counting", driven="in process")


class CountingEngine(EngineKind):
    name = "counting"
    takes_program = True

    def resolve(self, arm: ArmConfig, conditions: Conditions) -> CountingArm:
        return CountingArm(arm)

    def open(self, config: RunConfig, progress: OpenProgress) -> tuple[Model, list[CountingArm]]:
        dtype = "float32" if config.dtype == "auto" else config.dtype
        described = ModelRecord(name="counting", source="fingers", sha256="", synthetic=False, dtype=dtype)
        model = Model(described=described, vocab_size=counting_child.VOCAB, tokenizer=Letters(), eos_token_ids=())
        self._model = model
        return model, [self.resolve(arm, config) for arm in config.arms]

    @contextmanager
    def deploy(self, arm: CountingArm, config: RunConfig, log: Path) -> Iterator[ChildDeployment]:
        options = arm.config.options
        drafts = (
            0 if arm.config.strategy == "no-spec" and options.get("fault") != "drafts" else int(options.get("k", 2))
        )
        asked = {"fault": options.get("fault", ""), "drafts": drafts}
        with ChildProcess([sys.executable, counting_child.__file__], {}, log) as child:
            opened = Opened.of(child.ask({"do": "open", "engine": asked}, "opened"))
            yield ChildDeployment(
                child,
                opened,
                capabilities=arm.capabilities,
                model=self._model,
                batch_size=config.max_concurrency,
                max_model_len=config.max_model_len,
                ignore_eos=config.ignore_eos,
            )
