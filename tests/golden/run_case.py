"""Runs one case. The only place of the golden rounds that knows the engine: where an interface changes, this changes,
and never what is stored."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

import torch
from golden.device_calls import DeviceCalls
from golden.space import Case
from toy.backends import WithoutPadding
from toy.checkpoints import eagle1_config, write_eagle1
from toy.engines import fill_mixed_steps, generate, make_engine, named_strategy, pad_rounds, request, toy_target
from toy.few_words import FewWords
from toy.plans import Plan
from toy.prompts import text_prompt
from toy.scripted import PATTERNS, Script, Scripted
from toy.scripted_tree import ScriptedTree

from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import Request
from specbench.harness.engines.native.core.step_log import StepRow
from specbench.harness.engines.native.core.strategy import Strategy
from specbench.harness.engines.native.core.synthetic import SyntheticAcceptance
from specbench.harness.engines.native.core.tree import TreeShape
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.registry import ATTENTION_BACKENDS, STATE_UPDATES, lookup
from specbench.kernels.attention.base import AttentionBackend

Value = str | list[str]


class Missing(Exception):
    """This machine lacks what the case needs."""


def run_case(case: Case) -> dict[str, Value]:
    """What the case did, as words: tokens, rounds by request, steps, launched units, and on a GPU what was called."""
    requests = _requests(case.sampling)
    engine = _engine(case, _strategy(case, requests))
    launched = _Launched()
    engine.ranges = launched
    finished = generate(engine, _fresh(requests), after_step=launched.end_step)
    steps = [rows[0] for rows in _by_step(engine.log.rows)]
    said = [finished[r.id] for r in requests]
    values: dict[str, Value] = {
        "tokens": [" ".join(map(str, r.output_ids)) for r in said],
        "finish": " ".join(f"{r.finish_reason.value}/{r.num_preemptions}" for r in said if r.finish_reason),
        "rounds": [" ".join(_round(row) for row in engine.log.rows if row.request_id == r.id) for r in requests],
        "steps": _runs(
            f"{s.kind} b{s.batch_size} rows{s.num_rows}/{s.num_padded_rows} draft{s.num_draft_rows}" for s in steps
        ),
        "graphs": " ".join(_runs(s.graph for s in steps)),
        "syncs": " ".join(_runs(s.syncs or "-" for s in steps)),
        "launched": _runs(launched.steps),
    }
    return values | (_device_calls(engine, requests, values) if case.device == "cuda" else {})


def _device_calls(engine: Engine, requests: list[Request], first: dict[str, Value]) -> dict[str, Value]:
    """The requests once more on the same engine, so that nothing is captured or compiled any more."""
    calls = DeviceCalls()
    step = engine.step
    engine.step = lambda: calls.during(step)  # type: ignore[method-assign]
    with calls.recording():
        finished = generate(engine, _fresh(requests))
    again = [" ".join(map(str, finished[r.id].output_ids)) for r in requests]
    assert again == first["tokens"], f"the second run of the same requests says {again}"
    return {"calls": _runs(calls.steps), "device_operations": calls.device_operations}


def _round(row: StepRow) -> str:
    """Proposed, (depth,) accepted and emitted tokens of one request in one step."""
    depth = f"^{row.draft_depth}" * (row.draft_depth != row.num_proposed)
    return f"{'p' * row.is_prefill}{row.num_proposed}{depth}:{row.num_accepted}:{row.num_emitted}{'t' * row.truncated}"


def _by_step(rows: Iterable[StepRow]) -> list[list[StepRow]]:
    return [list(found) for _, found in groupby(rows, key=lambda row: row.step)]


def _runs(words: Iterable[str]) -> list[str]:
    """Neighbours that are equal stand once, with their number."""
    counted = ((word, len(list(same))) for word, same in groupby(words))
    return [f"{word} x{count}" if count > 1 else word for word, count in counted]


@dataclass(slots=True)
class _Launched:
    """Names of the ranges that each call of `step` opened: phases and graphs that were launched, reads, in order."""

    steps: list[str] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def range(self, name: str) -> Iterator[None]:
        if not name.startswith("step "):
            self._open.append(name)
        yield

    def end_step(self, engine: Engine) -> None:
        self.steps.append(" ".join(self._open))
        self._open.clear()


# -- what is run ----------------------------------------------------------------------------------------------------


def _requests(sampling: str) -> list[Request]:
    kinds = [dict(temperature=0.0), dict(temperature=0.8), dict(temperature=0.6, top_k=9, top_p=0.9)]
    return [
        request(
            i,
            text_prompt(i, length),
            max_tokens=18 + i,
            seed=40 + i,
            stop_token_ids=(115, 66) if i == 2 else (),
            **kinds[i % 3 if sampling == "mixed" else 0],
        )
        for i, length in enumerate((1, 2, 7, 19, 12, 33))
    ]


def _fresh(requests: Iterable[Request]) -> list[Request]:
    return [Request(r.id, r.prompt_ids, r.sampling) for r in requests]


@functools.cache
def _few_words(shape: str) -> FewWords:
    folder = Path(tempfile.mkdtemp(prefix="golden-"))
    return FewWords(folder, torch.bfloat16, head_dim=64) if shape == "wide" else FewWords(folder)


@functools.cache
def _eagle1_head() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="golden-"))
    write_eagle1(folder, eagle1_config())
    return folder


def _target(case: Case) -> LlamaModel:
    return toy_target(case.device) if case.target == "toy" else _few_words(case.target).target(case.device)


def _strategy(case: Case, requests: list[Request]) -> Strategy:
    name, _, text = case.strategy.partition(":")
    if name == "scripted":
        pattern, _, k = text.partition(",k=")
        return Scripted(int(k), Script.of(requests, _continuations(case), PATTERNS[pattern](int(k))))
    options = dict(word.split("=") for word in text.split(",") if word)
    if name == "scripted-tree":
        depth = int(options["depth"])
        script = Script.of(requests, _continuations(case), PATTERNS["random"](depth))
        return ScriptedTree(TreeShape(num_nodes=int(options["nodes"]), depth=depth, topk=3), script)
    if options.get("head") == "words":
        options["head"] = str(_few_words(case.target).head)
    elif options.get("head") == "words1":
        options["head"] = str(_eagle1_head())
    return named_strategy(name, **options)


@functools.cache
def _said_alone(device: str, target: str, sampling: str) -> dict[int, list[int]]:
    engine = _engine(Case(device, "no-spec", target, sampling=sampling), named_strategy("no-spec"))
    requests = [
        Request(r.id, r.prompt_ids, replace(r.sampling, max_tokens=r.sampling.max_tokens + 12, stop_token_ids=()))
        for r in _requests(sampling)
    ]
    return {number: done.output_ids for number, done in generate(engine, requests).items()}


def _continuations(case: Case) -> dict[int, list[int]]:
    return _said_alone(case.device, case.target, case.sampling)


def _engine(case: Case, strategy: Strategy) -> Engine:
    plan = Plan(case.device, case.graph, case.sync, case.lag, case.drafter, case.parts)
    rates = (0.85, 0.7, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1)[: strategy.num_drafts]
    engine = make_engine(
        plan,
        strategy,
        target=_target(case),
        acceptance=SyntheticAcceptance(rates, "varied") if case.acceptance == "synthetic" else None,
        backend=_backend(case, plan),
        update=lookup(STATE_UPDATES, case.update, "state update")(),
        page_size=16 if case.target == "wide" else 4,
        num_pages=31 if case.layout == "tight" else None,
    )
    if case.layout == "padded":
        pad_rounds(engine, [3, 8])
    elif case.layout == "filled":
        fill_mixed_steps(engine, 64)
    return engine


def _backend(case: Case, plan: Plan) -> AttentionBackend:
    if case.layout == "filled":
        return WithoutPadding()
    name = plan.attention if case.attention == "auto" else case.attention
    try:
        return lookup(ATTENTION_BACKENDS, name, "attention")()
    except ValueError as error:  # its message says which library is missing
        raise Missing(str(error)) from error
