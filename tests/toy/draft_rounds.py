"""Rounds whose drafts are compared with a reference, over a few requests whose acceptance is forced to vary."""

from __future__ import annotations

from collections.abc import Callable

from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import Request
from specbench.harness.engines.native.core.synthetic import SyntheticAcceptance

from .compare import TOP2_TOLERANCE
from .engines import generate, request
from .prompts import text_prompt


def varied_acceptance(num_drafts: int) -> SyntheticAcceptance:
    """Rates at which every count happens, since a random head's drafts would nearly always be rejected."""
    return SyntheticAcceptance(tuple(0.85 - 0.1 * i for i in range(num_drafts)), "varied")


def varied_requests(max_tokens: int = 24, sampled: bool = True) -> list[Request]:
    """Every other one sampled. A prompt of one token is among them: its drafter has no key before the first round."""
    return [
        request(i, text_prompt(i, n), max_tokens=max_tokens, temperature=0.8 * sampled * (i % 2), seed=i)
        for i, n in enumerate((1, 2, 7, 19, 12))
    ]


def compare_drafts(
    engine: Engine, requests: list[Request], wanted: Callable[[list[int], int], tuple[list[int], float]]
) -> tuple[int, int]:
    """Runs the requests; rounds compared, and rounds that differ beyond a near-tie. `wanted`: the drafts after a
    context, so many of them, and how close the second best came."""
    num_compared = num_different = 0

    def look(engine: Engine) -> None:
        nonlocal num_compared, num_different
        for r in engine.scheduler.running:
            if not r.is_prefilling:
                drafts, gap = wanted([*r.prompt_ids, *r.output_ids], engine.strategy.num_drafts)
                num_compared += 1
                num_different += engine.state.drafts_SK[r.slot].tolist() != drafts and gap > TOP2_TOLERANCE

    generate(engine, requests, after_step=look)
    return num_compared, num_different
