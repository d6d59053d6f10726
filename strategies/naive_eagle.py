"""Naive EAGLE (SGLang PR 6995): verify and draft as one unit, a single CUDA graph for the whole round.

The pull request fixes one draft per round; here k = 1 is the default and any k works. Unlike there, the sampler is the
lossless one shared by all strategies, page size and batch are arbitrary, and drafting is inside the graph.
"""

from __future__ import annotations

from dataclasses import dataclass

from .eagle import Eagle


@dataclass(frozen=True, kw_only=True)
class NaiveEagle(Eagle):
    """k: drafts per round (1 as in the pull request), or `auto` by k_table, as for eagle. head: folder or hub name of
    an EAGLE checkpoint, `random` or `random-eagle1`. draft_sample_method: as for eagle."""

    name = "naive-eagle"
    graph = "one_and_full"
    default_arm = ""
    cover_options = None
    same_rounds_as = Eagle.name

    k: int = 1
