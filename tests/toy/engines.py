"""Toy engines and how to drive them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from specbench.harness.engines.load import PromptRequest
from specbench.harness.engines.native.core.config import EngineConfig
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.layouts import MixedEntry, mixed_batch
from specbench.harness.engines.native.core.request import Request, SamplingParams
from specbench.harness.engines.native.core.strategy import AcceptanceOverride, Strategy
from specbench.harness.engines.native.deployment import NativeDeployment
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.loader import dummy_target
from specbench.harness.registry import ATTENTION_BACKENDS, lookup, strategy_class
from specbench.harness.spec.plans import parse_plan
from specbench.kernels.attention.base import AttentionBackend
from specbench.kernels.state_update import StateUpdate

from .plans import Plan

_MAX_STEPS = 20_000


@functools.cache
def toy_target(device: str = "cpu", num_layers: int | None = None) -> LlamaModel:
    """The target of most tests: random weights, fp32, the same on every call."""
    with torch.inference_mode(False):  # tests of training take gradients through it
        model = dummy_target("toy", torch.float32, torch.device("cpu"), num_layers=num_layers)
        if device == "cpu":
            return model
        return dummy_target("toy", torch.float32, torch.device(device), num_layers=num_layers)


def named_strategy(name: str, **options: object) -> Strategy:
    return strategy_class(name).of({key: str(value) for key, value in options.items()})


def make_engine(
    plan: Plan,
    strategy: Strategy | None = None,
    *,
    target: LlamaModel | None = None,
    acceptance: AcceptanceOverride | None = None,
    backend: AttentionBackend | None = None,
    update: StateUpdate | None = None,
    **config: Any,
) -> Engine:
    """An engine on the toy target; `config` are fields of EngineConfig (small by default, so that all paths run)."""
    sizes: dict[str, Any] = dict(max_model_len=160, max_num_seqs=4, page_size=4, max_num_batched_tokens=24)
    strategy = strategy or named_strategy("no-spec")
    graph = parse_plan(plan.graph, dict(plan.parts))
    if strategy.tree is not None and graph.mixed == "full":
        graph = dataclasses.replace(graph, mixed="piecewise")  # what is offered for trees
    engine_config = EngineConfig(
        **{**sizes, "drafter": plan.drafter, **config}, graph=graph, sync=plan.sync, status_lag=plan.status_lag
    )
    backend = backend or lookup(ATTENTION_BACKENDS, plan.attention, "attention")()
    target = target or toy_target(plan.device)
    return Engine(engine_config, target, strategy, backend, acceptance, update=update)


def request(number: int, prompt: Iterable[int], **sampling: Any) -> Request:
    return Request(number, tuple(prompt), SamplingParams(**sampling))


def deployed(engine: Engine) -> NativeDeployment:
    """Behind the interface, without a tokenizer."""
    return NativeDeployment(engine)


def asked(requests: Iterable[Request]) -> list[PromptRequest]:
    """As the interface takes them; what they have said is left behind."""
    return [
        PromptRequest(id=r.id, key=f"p{r.id}", prompt_ids=r.prompt_ids, text="", sampling=r.sampling) for r in requests
    ]


def drive(engine: Engine, after_step: Callable[[Engine], None] | None = None) -> dict[int, Request]:
    """Steps until nothing is left; finished requests by id. Fails where the engine makes no progress."""
    finished: dict[int, Request] = {}
    for _ in range(_MAX_STEPS):
        if not engine.has_work:
            return finished
        for done in engine.step():
            assert done.id not in finished, f"request {done.id} finished twice"
            finished[done.id] = done
        if after_step:
            after_step(engine)
    raise AssertionError(f"no end after {_MAX_STEPS} steps")


def generate(engine: Engine, requests: Iterable[Request], **kwargs: Any) -> dict[int, Request]:
    """Adds all requests, runs them, checks that each came back and that every page and slot is free again."""
    expected = set()
    for item in requests:
        engine.add(item)
        expected.add(item.id)
    finished = drive(engine, **kwargs)
    assert set(finished) == expected, "requests lost"
    assert_idle(engine)
    return finished


def assert_idle(engine: Engine) -> None:
    assert engine.allocator.num_free == engine.allocator.num_usable, "pages leaked"
    assert len(engine.scheduler._free_slots) == engine.config.max_num_seqs, "slots leaked"
    assert not engine.scheduler.running and not engine.scheduler.waiting and not engine.readback


def outputs(finished: dict[int, Request]) -> dict[int, list[int]]:
    return {number: list(r.output_ids) for number, r in finished.items()}


def decode_rows(engine: Engine, number: int | None = None) -> list:
    """Rows of the step log with drafts: decode rounds and the decodes of mixed steps."""
    return [r for r in engine.log.rows if not r.is_prefill and (number is None or r.request_id == number)]


def assert_same_acceptance(engines: Iterable[Engine]) -> None:
    """Every request's rounds accept the same numbers of drafts, whichever engine ran them."""
    first, *others = [
        {r.request_id: [x.num_accepted for x in decode_rows(engine, r.request_id)] for r in engine.log.rows}
        for engine in engines
    ]
    assert others and all(other == first for other in others)


def fill_mixed_steps(engine: Engine, size: int) -> None:
    """Runs mixed steps over the padded layout of a captured one, phase by phase: what plan `full` replays."""
    launcher = engine.launcher

    def launch(entries: list[MixedEntry], mode: Any, ranges: Any, host_of: Callable, num_drafts: int) -> tuple:
        batch = mixed_batch(engine.state, launcher._filled(entries, size, num_drafts))
        batch.slots = tuple(entry.slot for entry in entries)
        host = host_of(batch)
        for phase in engine.builder.phases(batch, mode):
            assert phase.prepare is None, "a captured step has no place for the host"
            phase.run(batch)
        host.acceptance_launched()
        return batch, host, "full"

    launcher.launch_mixed = launch  # type: ignore[method-assign]


def pad_rounds(engine: Engine, sizes: list[int]) -> None:
    """Makes an engine without graphs pad its rounds to `sizes` as captured rounds are."""
    engine.launcher._sizes = sorted(sizes)
