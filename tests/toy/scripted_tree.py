"""A drafter of trees that follows a script: which path is right, and how far, is known beforehand.

Every round takes one of a few random tree shapes, picked by the position of the pending token; one path of the shape
carries the target's own continuation as far as the script says, every other node a wrong token.
Legend: R shapes, D nodes of a tree with its root, K = D - 1, F first tokens, L positions, B requests.
"""

from __future__ import annotations

import torch
from kernels.trees import random_trees
from torch import Tensor

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.draft_counts import FixedDrafts
from specbench.harness.engines.native.core.lookahead import Lookahead
from specbench.harness.engines.native.core.state import RoundState
from specbench.harness.engines.native.core.strategy import Drafter, EngineResources, Phase
from specbench.harness.engines.native.core.tree import TreeShape

from .prompts import VOCAB
from .scripted import Script

_NUM_SHAPES = 13


class ScriptedTree:
    """The strategy; `script` says how many tokens of the marked path are right in each round."""

    name = "scripted-tree"
    graph = "one"

    def __init__(self, shape: TreeShape, script: Script):
        self.tree = shape
        self.num_drafts = shape.num_nodes - 1
        self.lookahead = Lookahead.of(self.num_drafts, shape)
        self.script = script

    def draft_counts(self) -> FixedDrafts:
        return FixedDrafts(self.num_drafts)

    def make_drafter(self, resources: EngineResources) -> ScriptedTreeDrafter:
        return ScriptedTreeDrafter(self.tree, self.script, resources.state)


class ScriptedTreeDrafter(Drafter):
    def __init__(self, shape: TreeShape, script: Script, state: RoundState):
        self.num_drafts = shape.num_nodes - 1
        self._state = state
        drafts_RK = torch.zeros(_NUM_SHAPES, self.num_drafts, dtype=torch.int64)
        size = shape.num_nodes
        trees = random_trees(
            seed=size, num_slots=_NUM_SHAPES, size=size, depth=shape.depth, drafts_SK=drafts_RK, vocab=VOCAB
        )
        device = state.device
        self._parent_RD, self._depth_RD = trees.parent_SD.to(device), trees.depth_SD.to(device)
        self._mask_RDD = trees.mask_SDD.to(device)
        self._exists_RK = (drafts_RK >= 0).to(device)
        self._on_path_RK = _longest_path(trees.mask_SDD, trees.depth_SD)[:, 1:].to(device)
        self._tokens_FL, self._right_FL = script.tokens_FL.to(device), script.right_FL.to(device)
        self._node_K = torch.arange(1, shape.num_nodes, device=device)

    def phases(self, batch: StepBatch) -> list[Phase]:
        return [Phase("draft_first", self._propose)]

    def _propose(self, b: StepBatch) -> None:
        s = self._state
        assert s.tree is not None
        first_B = s.tokens_SL.index_select(0, b.rows.slot_B)[:, 0]
        n_B = s.n_S.index_select(0, b.rows.slot_B).to(torch.int64)
        shape_B = n_B % _NUM_SHAPES
        depth_BK = self._depth_RD[shape_B, 1:].long()
        text_BK = self._tokens_FL[first_B[:, None], (n_B[:, None] + depth_BK).clamp(max=self._tokens_FL.shape[1] - 1)]
        is_right_BK = self._on_path_RK[shape_B] & (depth_BK <= self._right_FL[first_B, n_B][:, None])
        wrong_BK = (text_BK + 1 + self._node_K) % VOCAB  # siblings differ, and none is right: K < VOCAB - 1
        drafts_BK = torch.where(is_right_BK, text_BK, wrong_BK)
        s.drafts_SK.index_copy_(0, b.rows.slot_B, torch.where(self._exists_RK[shape_B], drafts_BK, -1))
        for mine_R, theirs_S in (
            (self._parent_RD, s.tree.parent_SD),
            (self._depth_RD, s.tree.depth_SD),
            (self._mask_RDD, s.tree.mask_SDD),
        ):
            theirs_S.index_copy_(0, b.rows.slot_B, mine_R[shape_B])


def _longest_path(mask_RDD: Tensor, depth_RD: Tensor) -> Tensor:
    """bool [R, D]: the ancestors of the last of the deepest nodes, and that node."""
    size = depth_RD.shape[1]
    last_deepest_R = (depth_RD.long() * size + torch.arange(size)).argmax(dim=1)
    return mask_RDD[torch.arange(len(mask_RDD)), last_deepest_R]
