"""What the engine should say: the no-spec continuation, cut where a request ends."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace

from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import FinishReason, Request, SamplingParams

from .compare import assert_same_output
from .engines import generate, make_engine
from .plans import Plan


@functools.cache
def _alone(device: str) -> Engine:
    """One request at a time, no speculation, no graphs."""
    return make_engine(Plan(device), max_model_len=1024, max_num_seqs=1, page_size=64)


@functools.cache
def _continuation(device: str, prompt: tuple[int, ...], sampling: SamplingParams) -> list[int]:
    engine = _alone(device)
    engine.log.take()
    return generate(engine, [Request(0, prompt, sampling)])[0].output_ids


def continuations(plan: Plan, requests: Iterable[Request], extra: int = 12) -> dict[int, list[int]]:
    """Each request alone without speculation, stop ids ignored, `extra` tokens beyond its max_tokens."""
    found = {}
    for r in requests:
        sampling = replace(r.sampling, max_tokens=r.sampling.max_tokens + extra, stop_token_ids=())
        found[r.id] = list(_continuation(plan.device, r.prompt_ids, sampling))
    return found


def ending(request: Request, tokens: list[int], max_model_len: int) -> tuple[list[int], FinishReason]:
    """The tokens that `request` may keep of its continuation, and why it ends."""
    room = min(request.sampling.max_tokens, max_model_len - len(request.prompt_ids))
    for index, token in enumerate(tokens[:room]):
        if token in request.sampling.stop_token_ids:
            return tokens[: index + 1], FinishReason.STOP
    return tokens[:room], FinishReason.LENGTH


def assert_as_oracle(
    engine: Engine, finished: dict[int, Request], oracle: dict[int, list[int]], where: str = ""
) -> None:
    """Every finished request has its continuation, cut where it must be, and the right finish reason."""
    for number, done in finished.items():
        tokens, reason = ending(done, oracle[number], engine.config.max_model_len)
        label = f"{where} request {number}"
        assert_same_output(engine.target, done.prompt_ids, done.sampling, done.output_ids, tokens, label)
        if done.output_ids == tokens:
            assert done.finish_reason == reason, label
