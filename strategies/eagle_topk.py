"""EAGLE with EAGLE-2's dynamic draft tree: the target verifies the best paths of several, not one chain.

Options as in SGLang (`--speculative-num-steps`, `-eagle-topk`, `-num-draft-tokens`); the tree itself is SafeAILab's
(see tree_expand.py). The verified tree is lossless for greedy and sampled requests alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specbench.harness.engine.strategy import Drafter, EngineResources
from specbench.harness.engine.tree import TreeShape
from specbench.kernels.tree_expand import num_candidates

from .options import read_options
from .tree_drafter import TreeDrafter

_MOST_STEPS, _MOST_TOPK, _MOST_NODES = 8, 16, 64


@dataclass(frozen=True, kw_only=True, slots=True)
class EagleTopkOptions:
    """num_steps: levels of the tree. topk: children a node and nodes kept a level. num_draft_tokens: nodes verified a
    round, the pending token included. head: directory of an EAGLE checkpoint, or `random` (for forced acceptance)."""

    num_steps: int = 5
    topk: int = 8
    num_draft_tokens: int = 32
    head: str = ""


class EagleTopk:
    name = "eagle-topk"
    graph = "full_and_piecewise"

    def __init__(self, options: Mapping[str, str]):
        self.options = read_options(EagleTopkOptions, self.name, options)
        self.tree: TreeShape | None = _shape(self.name, self.options)
        self.num_drafts = self.options.num_draft_tokens - 1

    def make_drafter(self, resources: EngineResources) -> Drafter | None:
        assert self.tree is not None
        head = resources.load_head(self.options.head, self.name)
        return TreeDrafter(head, self.tree, resources)


def _shape(strategy: str, options: EagleTopkOptions) -> TreeShape:
    steps, topk, nodes = options.num_steps, options.topk, options.num_draft_tokens
    for name, value, most in (("num_steps", steps, _MOST_STEPS), ("topk", topk, _MOST_TOPK)):
        if not 1 <= value <= most:
            raise ValueError(f"{strategy}: {name}={value} is not allowed; allowed: 1 to {most}")
    candidates = num_candidates(topk, steps)
    most = min(candidates + 1, _MOST_NODES)
    if not 2 <= nodes <= most:
        raise ValueError(
            f"{strategy}: num_draft_tokens={nodes} is not allowed; allowed with num_steps={steps} and topk={topk}, "
            f"which make {candidates} candidates beside the pending token: 2 to {most}"
        )
    return TreeShape(num_nodes=nodes, depth=steps, topk=topk)
