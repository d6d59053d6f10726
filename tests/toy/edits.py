"""Requests that change their logits, and every strategy that must not care."""

from __future__ import annotations

import functools

from specbench.harness.engines.native.core.request import Request, SamplingParams
from specbench.harness.engines.native.core.strategy import Strategy
from specbench.harness.engines.native.core.tree import TreeShape

from .engines import generate, make_engine, named_strategy, request
from .plans import Plan
from .prompts import text_prompt
from .scripted import PATTERNS, Script, Scripted, random_right
from .scripted_tree import ScriptedTree

STOP = 77
FEATURES: dict[str, dict] = {
    "min_p": dict(min_p=0.97),
    "logit_bias": dict(logit_bias=((5, 0.2), (60, 0.15), (9, -1.0))),
    "allowed": dict(allowed_token_ids=(1, 3, 5, 8, 13, 21, 34, 55, 89)),
    "banned": dict(banned_token_ids=tuple(range(0, 128, 2))),
    "bad_words": dict(  # of what these requests say without them; (114, 103) and (101, 76) begin in a prompt
        bad_words=((50, 50), (50, 35, 50), (36, 36, 19), (29, 7), (7, 7, 7, 7), (114, 103), (101, 76), (90,))
    ),
    "min_tokens": dict(min_tokens=11, stop_token_ids=(3, STOP), logit_bias=((STOP, 2.0),)),
    "repetition": dict(repetition_penalty=1.6),
    "frequency": dict(frequency_penalty=0.3),
    "repetition_below_0": dict(repetition_penalty=1.6, logit_bias=tuple((token, -3.0) for token in range(128))),
    "presence": dict(presence_penalty=0.08),
    "encouraged": dict(frequency_penalty=-0.04, presence_penalty=-0.4, repetition_penalty=0.9),
    "all": dict(
        min_p=0.5,
        logit_bias=((5, 0.2), (STOP, 0.9)),
        banned_token_ids=(6, 7),
        bad_words=((9, 9), (60, 5, 60), (102, 99)),
        allowed_token_ids=tuple(range(0, 128, 3)) + (5, STOP),
        min_tokens=5,
        stop_token_ids=(STOP,),
        repetition_penalty=1.1,
        frequency_penalty=0.2,
        presence_penalty=0.1,
    ),
}
_KINDS = [
    dict(temperature=0.0),
    dict(temperature=0.7),
    dict(temperature=0.4, top_k=9, top_p=0.9),
    dict(temperature=0.0),
]
STRATEGIES = (
    ("no-spec", {}),
    ("ngram", dict(k=4, min_n=1)),
    ("eagle", dict(k=3, head="random")),
    ("naive-eagle", dict(head="random")),
    ("eagle-topk", dict(topk=3, num_steps=3, num_draft_tokens=8, head="random")),
    ("draft-model", dict(k=3, draft="shape:toy")),
)
SCRIPTS = (*PATTERNS, "tree")


def requests_with(feature: dict, num: int = 5, max_tokens: int = 15) -> list[Request]:
    """Greedy, sampled and filtered ones in turn; the fourth asks for no change, as its neighbours in a batch may."""
    return [
        request(
            i,
            text_prompt(i, 3 + 4 * i),
            max_tokens=max_tokens + i,
            seed=50 + i,
            **_KINDS[i % 4],
            **(feature if i % 4 != 3 else {}),
        )
        for i in range(num)
    ]


def scripted(kind: str, requests: list[Request], plan: Plan) -> Strategy:
    """Drafts of which it is known how many are right, made from what these requests say without drafts."""
    oracle = {r.id: list(_said_alone(plan, r.prompt_ids, r.sampling)) for r in requests}
    if kind == "tree":
        shape = TreeShape(num_nodes=9, depth=3, topk=3)
        return ScriptedTree(shape, Script.of(requests, oracle, random_right(3)))
    return Scripted(3, Script.of(requests, oracle, PATTERNS[kind](3)))


@functools.cache
def _said_alone(plan: Plan, prompt: tuple[int, ...], sampling: SamplingParams) -> list[int]:
    return generate(make_engine(plan, max_num_seqs=1), [Request(0, prompt, sampling)])[0].output_ids


def request_again(r: Request) -> Request:
    return Request(r.id, r.prompt_ids, r.sampling)


def named(name: str) -> Strategy:
    return named_strategy(name, **dict(STRATEGIES)[name])
