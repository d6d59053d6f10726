"""Naive EAGLE (SGLang PR 6995): verify and draft as one unit, a single CUDA graph for the whole round.

The pull request fixes one draft a round; here k = 1 is the default and any k works. Unlike there, the sampler is the
lossless one of every strategy, page size and batch are free, and drafting is inside the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specbench.harness.engine.strategy import Drafter, EngineResources

from .chain_drafter import ChainDrafter
from .options import check_num_drafts, read_options


@dataclass(frozen=True, kw_only=True, slots=True)
class NaiveEagleOptions:
    """k: drafts a round (1 as in the pull request). head: directory of an EAGLE-3 checkpoint, or `random`."""

    k: int = 1
    head: str = ""


class NaiveEagle:
    name = "naive-eagle"
    graph = "one"
    tree = None

    def __init__(self, options: Mapping[str, str]):
        self.options = read_options(NaiveEagleOptions, self.name, options)
        check_num_drafts(self.name, self.options.k)
        self.num_drafts = self.options.k

    def make_drafter(self, resources: EngineResources) -> Drafter | None:
        head = resources.load_head(self.options.head, self.name)
        return ChainDrafter(head, self.num_drafts, resources)
