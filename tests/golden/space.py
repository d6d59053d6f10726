"""The cases whose rounds are stored, in plain words: their names outlive the interfaces that they are run through."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

GRAPHS = ("none", "piecewise", "full_decode_only", "full_and_piecewise", "full", "one")

PLAIN = "no-spec"
LOOKUP = ("ngram:k=3,min_n=1", "ngram:k=5,min_n=2")
CHAINS = ("eagle:k=1,head=words", "eagle:k=3,head=words", "eagle:k=7,head=words", "eagle:k=3,head=words1")
NAIVE = ("naive-eagle:k=2,head=words", "naive-eagle:k=4,head=words")
TREES = (
    "eagle-topk:topk=1,num_steps=3,num_draft_tokens=4,head=words",
    "eagle-topk:topk=2,num_steps=3,num_draft_tokens=8,head=words",
    "eagle-topk:topk=4,num_steps=2,num_draft_tokens=16,head=words",
)
DRAFT_MODELS = ("draft-model:k=2,draft=self:1", "draft-model:k=4,draft=self:5", "draft-model:k=4,draft=self:6")
SCRIPTED = (
    "scripted:cycling,k=4",
    "scripted:random,k=8",
    "scripted:partly-empty,k=5",
    "scripted-tree:nodes=13,depth=4",
)
RANDOM_HEADS = (
    "eagle:k=3,head=random",
    "eagle:k=3,head=random-eagle1",
    "naive-eagle:k=3,head=random",
    "eagle-topk:topk=2,num_steps=3,num_draft_tokens=8,head=random",
    "draft-model:k=3,draft=shape:toy",
)
ON_WORDS = (PLAIN, *LOOKUP, *CHAINS, *NAIVE, *TREES, *DRAFT_MODELS)
ON_TOY = (PLAIN, *SCRIPTED)
# One of each drafter, for products with many switches.
ONE_EACH = (PLAIN, LOOKUP[0], CHAINS[1], CHAINS[3], NAIVE[0], TREES[1], DRAFT_MODELS[1])


@dataclass(frozen=True, slots=True)
class Case:
    """`target`: words (says four words, drafts are sometimes accepted), toy (random weights), wide (words in bf16)."""

    device: str
    strategy: str
    target: str = "words"
    graph: str = "none"
    parts: tuple[tuple[str, str], ...] = ()  # (target | first | later | mixed, mode) that replace the graph plan's
    sync: str = "single"
    lag: int = 0
    drafter: str = "padded"
    attention: str = "auto"
    update: str = "fused"
    sampling: str = "mixed"  # or greedy
    acceptance: str = "real"  # or synthetic
    layout: str = (
        "as-is"  # CPU: padded (rounds as captured ones are), tight (few pages, so that requests are preempted)
    )

    @property
    def name(self) -> str:
        words = [self.strategy, f"on={self.target}", f"graph={self.graph}", *(f"{p}={mode}" for p, mode in self.parts)]
        words += [f"sync={self.sync}" + f"/{self.lag}" * bool(self.lag)]
        default = Case(self.device, self.strategy)
        for field in ("drafter", "attention", "update", "sampling", "acceptance", "layout"):
            if getattr(self, field) != getattr(default, field):
                words.append(f"{field}={getattr(self, field)}")
        return " ".join(words)

    @property
    def is_lossless(self) -> bool:
        """Whether its text is the target's own in fp32: the same for every such case of one target and sampling."""
        return self.acceptance == "real" and self.target != "wide"

    @property
    def can_unpad(self) -> bool:
        return self.strategy.startswith(("eagle:", "naive-eagle:"))


def cases(device: str) -> list[Case]:
    """Every case of one device, without repeats, in a fixed order."""
    found = _cpu() if device == "cpu" else _cuda()
    return list(dict.fromkeys(found))


def _syncs(case: Case, *lags: int) -> Iterator[Case]:
    yield case
    if case.graph not in ("full", "one"):  # the host reads in mid-step
        yield replace(case, sync="multi")
    for lag in lags:
        yield replace(case, sync="none", lag=lag)


def _unpadded(case: Case) -> Iterator[Case]:
    if case.can_unpad:
        yield replace(case, drafter="unpadded")
        yield replace(case, drafter="unpadded", sync="multi")


def _strategies(device: str) -> Iterator[Case]:
    for strategy in ON_WORDS:
        yield Case(device, strategy)
    for strategy in ON_TOY:
        yield Case(device, strategy, "toy")
    for strategy in RANDOM_HEADS:
        yield Case(device, strategy, "toy", acceptance="synthetic")


def _cpu() -> Iterator[Case]:
    for case in _strategies("cpu"):
        yield from _syncs(case, 1, 4)
        yield from _unpadded(case)
        yield replace(case, update="torch")
        yield replace(case, sampling="greedy")
    for strategy in ONE_EACH:
        case = Case("cpu", strategy)
        yield replace(case, layout="padded")
        yield replace(case, layout="padded", sync="multi")
        yield replace(case, layout="padded", sync="none", lag=2)
        yield replace(case, layout="tight")
        if strategy not in TREES:
            yield replace(case, layout="filled")
        if strategy != PLAIN:
            yield replace(case, acceptance="synthetic")
            yield replace(case, acceptance="synthetic", update="torch")


def _cuda() -> Iterator[Case]:
    for case, graph in itertools.product(_strategies("cuda"), GRAPHS):
        if case.strategy in ONE_EACH or graph in ("none", "full_and_piecewise", "one"):
            yield replace(case, graph=graph)
    for strategy, graph in itertools.product(ONE_EACH, GRAPHS):
        yield from _syncs(Case("cuda", strategy, graph=graph), 1, 2)
    for strategy, graph in itertools.product(ONE_EACH, ("none", "full_and_piecewise", "one")):
        yield Case("cuda", strategy, graph=graph, sampling="greedy")
        yield Case("cuda", strategy, graph=graph, update="torch")
    yield from _cuda_unpadded()
    yield from _cuda_parts()
    yield from _cuda_attention()


def _cuda_unpadded() -> Iterator[Case]:
    for strategy in (*CHAINS[1:], NAIVE[0]):
        case = Case("cuda", strategy)
        for graph, first in (("none", "none"), ("piecewise", "piecewise"), ("full_and_piecewise", "piecewise")):
            parts = (("first", first),) if first != graph else ()
            yield from _unpadded(replace(case, graph=graph, parts=parts))


def _cuda_parts() -> Iterator[Case]:
    modes = ("none", "piecewise", "full")
    for index, decode in enumerate(itertools.product(modes, repeat=3)):
        parts = tuple(zip(("target", "first", "later", "mixed"), (*decode, modes[index % 3]), strict=True))
        yield Case("cuda", CHAINS[1], parts=parts, sync="multi" if index % 4 == 3 and index % 3 != 2 else "single")


def _cuda_attention() -> Iterator[Case]:
    """The torch backend, and libraries that only some machines have: in bf16, whose text nothing is compared with."""
    for strategy, graph in itertools.product(ONE_EACH, ("none", "piecewise")):
        yield from _syncs(Case("cuda", strategy, graph=graph, attention="torch"))
    chain, tree = CHAINS[1], TREES[1]
    for strategy, graph in itertools.product((PLAIN, chain, tree), ("none", "full_and_piecewise", "one")):
        for attention in ("triton", "flash-attention", "flashinfer", "flashinfer-xqa"):
            planned, masks = attention == "flashinfer", attention in ("triton", "flashinfer")
            if not (planned and graph == "one") and (masks or strategy != tree):
                yield Case("cuda", strategy, "wide", graph, attention=attention)
