"""Random traffic for an engine that runs ahead: arrivals, aborts, stop ids, preemptions, logit edits, padded steps."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import Request

from .backends import WithoutPadding
from .edits import FEATURES
from .engines import fill_mixed_steps, make_engine, named_strategy, pad_rounds, request
from .few_words import WORDS, FewWords
from .lazy_device import LazyDevice
from .plans import late
from .prompts import text_prompt

MAX_MODEL_LEN = 56
_MIXED_ROWS = 96  # more than any step here has
_MAX_STEPS = 5000
STRATEGIES: dict[str, dict] = {
    "no-spec": {},
    "ngram": dict(k=3, min_n=1),
    "eagle": dict(k=4),
    "naive-eagle": dict(k=3),
    "eagle-topk": dict(topk=3, num_steps=3, num_draft_tokens=8),
    "draft-model": dict(k=3, draft="self:1"),
}
_KINDS: list[dict] = [
    dict(temperature=0.0),
    dict(temperature=0.8),
    dict(temperature=0.5, top_k=9),
    dict(temperature=0.0, logprobs=3),
    dict(temperature=0.7, **FEATURES["frequency"]),
    dict(temperature=0.0, **FEATURES["bad_words"]),
    dict(temperature=0.9, logprobs=2, **FEATURES["repetition"]),
    dict(temperature=0.6, **FEATURES["allowed"]),
]


class Drawn:
    """Another number of drafts in each step, as `k=auto` may choose it."""

    choices = (0, 1, 2, 4)

    def __init__(self) -> None:
        self._rng = random.Random(1)

    def choose(self, num_requests: int) -> int:
        return self._rng.choice(self.choices)

    def accepted(self, *status) -> None:
        """Changes nothing."""


@dataclass
class Seen:
    """What became of the requests, and that the traffic has what it should have."""

    finished: dict[int, Request] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    most_in_flight: int = 0

    @property
    def num_preemptions(self) -> int:
        return sum(r.num_preemptions for r in self.finished.values())


def random_requests(rng: random.Random, num: int) -> list[Request]:
    """Few prompts and seeds, so that many requests say the same and are known."""
    found = []
    for number in range(num):
        kind = dict(rng.choice(_KINDS), max_tokens=rng.choice((1, 2, 12, 30, 60)), seed=number % 3)
        if rng.random() < 0.3:
            kind["stop_token_ids"] = rng.choice((WORDS[:2], WORDS[1:2]))
        length = rng.choice((1, 2, 9, 25, MAX_MODEL_LEN - 1))
        found.append(request(number, text_prompt(number % 3, length), **kind))
    return found


def random_engine(rng: random.Random, name: str, lag: int, few_words: FewWords) -> Engine:
    """Few pages, so that requests are preempted."""
    head = dict(head=few_words.head) if "eagle" in name else {}
    strategy = named_strategy(name, **STRATEGIES[name], **head)
    if name == "eagle":
        object.__setattr__(strategy, "draft_counts", Drawn)  # a frozen dataclass
    page_size = rng.choice((1, 4, 16))
    engine = make_engine(
        late("cpu", "none", lag),
        strategy,
        target=few_words.target("cpu"),
        backend=WithoutPadding(),
        max_model_len=MAX_MODEL_LEN,
        page_size=page_size,
        num_pages=1 + -(-(MAX_MODEL_LEN + strategy.lookahead.overhang) // page_size) + rng.randint(0, 2),
        max_num_seqs=rng.choice((3, 5)),
        max_num_batched_tokens=rng.choice((3, 9, 30)),
    )
    if rng.random() < 0.5:
        pad_rounds(engine, [3, 8])
    if rng.random() < 0.3 and strategy.tree is None:
        fill_mixed_steps(engine, _MIXED_ROWS)
    return engine


def drive_at_random(rng: random.Random, engine: Engine, device: LazyDevice, arriving: list[Request]) -> Seen:
    """Steps until all have left. The device now and then gets ahead of what the host waits for."""
    seen, rate = Seen(), rng.choice((0.05, 0.2, 0.6))
    for _ in range(_MAX_STEPS):
        if not arriving and not engine.has_work:
            return seen
        if arriving and (rng.random() < rate or not engine.has_work):
            engine.add(arriving.pop())
        present = [*engine.scheduler.running, *engine.scheduler.waiting]
        if present and rng.random() < 0.03:
            doomed = rng.choice(present).id
            seen.aborted.add(doomed)
            engine.abort(doomed)
        seen.finished.update({done.id: done for done in engine.step()})
        seen.most_in_flight = max(seen.most_in_flight, len(engine.readback))
        if rng.random() < 0.3:
            device.run(rng.randint(1, 12))
    raise AssertionError(f"no end after {_MAX_STEPS} steps")
