"""EAGLE with EAGLE-2's dynamic draft tree: the target verifies the best of several paths, not one chain.

Options as in SGLang (`--speculative-num-steps`, `-eagle-topk`, `-num-draft-tokens`); the tree itself is SafeAILab's
(see tree_expand.py). The verified tree is lossless for greedy and sampled requests alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from specbench.harness.engines.native.core.strategy import Drafter, EngineResources, Strategy
from specbench.harness.engines.native.core.tree import TreeShape
from specbench.kernels.tree_expand import num_candidates

from .tree_drafter import TreeDrafter

_MAX_TOPK, _MAX_NODES = 16, 64


@dataclass(frozen=True, kw_only=True)
class EagleTopk(Strategy):
    """num_steps: levels of the tree. topk: children per node and nodes kept per level. num_draft_tokens: nodes verified
    per round, including the pending token. head: directory of an EAGLE checkpoint, `random` or `random-eagle1`
    (for forced acceptance). draft_sample_method: drafts of sampled requests are the likeliest tokens (greedy) or drawn
    without replacement (probabilistic)."""

    name = "eagle-topk"
    graph = "full_and_piecewise"
    takes_head = True
    depth_option = "num_steps"
    cover_options = "num_steps=3,topk=3,num_draft_tokens=8"

    num_steps: int = 5
    topk: int = 8
    num_draft_tokens: int = 32
    head: str = ""
    draft_sample_method: str = "greedy"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.topk <= _MAX_TOPK:
            raise ValueError(f"{self.name}: topk={self.topk} is not allowed; allowed: 1 to {_MAX_TOPK}")
        candidates = num_candidates(self.topk, self.num_steps)
        most = min(candidates + 1, _MAX_NODES)
        if not 2 <= self.num_draft_tokens <= most:
            raise ValueError(
                f"{self.name}: num_draft_tokens={self.num_draft_tokens} is not allowed; allowed with num_steps="
                f"{self.num_steps} and topk={self.topk}, which make {candidates} candidates beside the pending token: "
                f"2 to {most}"
            )

    @property
    def tree(self) -> TreeShape:
        return TreeShape(num_nodes=self.num_draft_tokens, depth=self.num_steps, topk=self.topk)

    @property
    def num_drafts(self) -> int:
        return self.num_draft_tokens - 1

    def make_drafter(self, resources: EngineResources) -> Drafter | None:
        head = resources.load_head(self.head, self.name)
        vocab_size = resources.target.config.vocab_size if head.d2t is None else len(head.d2t)
        if self.topk > vocab_size:
            raise ValueError(
                f"{self.name}: topk={self.topk} is not allowed; allowed with this head, which drafts {vocab_size} "
                f"different tokens: 1 to {vocab_size}"
            )
        return TreeDrafter(head, self.tree, resources)
