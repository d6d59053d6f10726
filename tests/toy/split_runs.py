"""A short run of our engine by one process or by several ranks, and what it said: for tests that compare the two."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import torch

from specbench.harness.engines.load import Load
from specbench.harness.engines.native.adapter import NativeEngine
from specbench.harness.engines.native.core.request import Request, SamplingParams
from specbench.harness.engines.native.deployment import NativeDeployment
from specbench.harness.run.block_sink import NullSink
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.conditions import RunConfig
from specbench.kernels import cublas_choice
from specbench.kernels.cublas_lt import Problem
from specbench.workloads.base import Prompt

CONFIG = RunConfig(
    arms=(parse_arm("no-spec"),),
    model="toy",
    load_format="dummy",
    dtype="float32",
    device="cpu",
    max_model_len=64,
    max_concurrency=2,
    page_size=4,
    num_pages=10,  # two requests of 9 + 12 tokens do not fit side by side to their ends
)
PROMPTS = [Prompt(id=f"p{n}", token_ids=tuple(range(1, 8 + n)), max_tokens=12, text="") for n in range(3)]
LOAD = Load(
    prompts=PROMPTS, arrival_s=[0.0] * 3, max_concurrency=2, temperature=0.0, top_k=0, top_p=1.0, stop_token_ids=(),
    seed=7,
)  # fmt: skip
_DRAWN = (
    SamplingParams(max_tokens=12, seed=30),
    SamplingParams(max_tokens=12, seed=31, temperature=0.9),
    SamplingParams(max_tokens=12, seed=32, temperature=0.8, top_p=0.7, repetition_penalty=1.2),
)


class Quiet:
    def say(self, text: str) -> None: ...

    def asset(self, name: str, done: int, total: int) -> None: ...


class Kept(NullSink):
    def __init__(self) -> None:
        self.requests, self.steps, self.counters = {}, [], {}

    def request(self, row) -> None:
        self.requests[row.request_id] = list(row.output_token_ids), row.finish_reason, row.num_preemptions

    def add_steps(self, rows) -> None:
        self.steps += [(r.step, r.kind, r.request_id, r.num_accepted, r.num_emitted, r.syncs) for r in rows]

    def add_counters(self, rows) -> None:
        self.counters |= {row.name: row.value for row in rows}


def opened(config: RunConfig):
    engine = NativeEngine()
    _, arms = engine.open(config, Quiet())
    return engine, {arm.config.text: arm for arm in arms}


@torch.inference_mode()
def aborted_midway(deployment: NativeDeployment, num_tokens: int = 11) -> dict[int, tuple[list[int], str, int]]:
    """What two drawn requests and a third said, of which the first was aborted once it had so many of its 12 tokens:
    tokens, how each ended, and how often it was preempted."""
    engine = deployment.engine
    asked = [Request(n, prompt.token_ids, _DRAWN[n]) for n, prompt in enumerate(PROMPTS)]
    for request in asked:
        engine.add(request)
    while engine.has_work:
        engine.step()
        if len(asked[0].output_ids) >= num_tokens and asked[0].finish_reason is None:
            engine.abort(0)
    return {r.id: (list(r.output_ids), r.finish_reason.value, r.num_preemptions) for r in asked}


def has_found_an_algorithm(deployment: NativeDeployment) -> None:
    """As a search before a capture on a GPU does."""
    device = deployment.engine.target.device
    problem = Problem(320, 6144, 4096, torch.bfloat16, device)
    cublas_choice._known(device)[problem] = cublas_choice.Choice(algorithm=None, share=0.9)  # type: ignore[arg-type]


def said_by(engine_and_arms, config: RunConfig, text: str) -> Kept:
    engine, arms = engine_and_arms
    asked = [replace(request, sampling=_DRAWN[n]) for n, request in enumerate(map(LOAD.request, range(len(LOAD))))]
    kept = Kept()
    with engine.deploy(arms[text], config, Path(os.devnull)) as deployment:
        deployment.generate(asked, kept)
    return kept
