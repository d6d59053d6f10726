"""EAGLE-2's tree written as plainly as can be: nodes as objects, sorted lists, no tensors (conformance test 46)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(eq=False)
class Node:
    token: int
    score: float
    parent: Node | None
    order: int  # place among the candidates
    row: int = -1  # of its level's pass, once it is in the frontier

    @property
    def path(self) -> list[Node]:
        """From the root's child to this node."""
        return ([] if self.parent is None else self.parent.path) + [self]


@dataclass
class OracleTree:
    candidates: list[Node] = field(default_factory=list)
    frontiers: list[list[Node]] = field(default_factory=list)

    def nodes(self, size: int) -> list[Node]:
        """The size - 1 best candidates, in candidate order."""
        best = sorted(self.candidates, key=lambda node: (-node.score, node.order))[: size - 1]
        return sorted(best, key=lambda node: node.order)


def log_softmax(logits: list[float]) -> list[float]:
    largest = max(logits)
    lse = largest + math.log(sum(math.exp(z - largest) for z in logits))
    return [z - lse for z in logits]


def grow(topk: int, depth: int, logits_of: Callable[[Node | None], list[float]]) -> OracleTree:
    """`logits_of(node)`: the drafter's logits behind a node (None: the root)."""
    tree = OracleTree()
    frontier: list[Node | None] = [None]
    for level in range(1, depth + 1):
        group: list[Node] = []
        for parent in frontier:
            scores = log_softmax(logits_of(parent))
            ids = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:topk]
            above = 0.0 if parent is None else parent.score
            first = len(tree.candidates) + len(group)
            group += [Node(i, above + scores[i], parent, first + place) for place, i in enumerate(ids)]
        tree.candidates += group
        if level < depth:
            best = sorted(group, key=lambda node: (-node.score, node.order))[:topk]
            for row, node in enumerate(best):
                node.row = row
            tree.frontiers.append(best)
            frontier = list(best)
    return tree


def arrays(nodes: list[Node]) -> tuple[list[int], list[int], list[int], list[list[bool]]]:
    """Drafts, parents, depths and mask of the tree of the root and `nodes`; fails where an ancestor is missing."""
    number = {id(node): index + 1 for index, node in enumerate(nodes)}
    parents = [-1] + [0 if node.parent is None else number[id(node.parent)] for node in nodes]
    depths = [0] + [len(node.path) for node in nodes]
    mask = [[column == 0 for column in range(len(nodes) + 1)]]
    for node in nodes:
        seen = {0} | {number[id(above)] for above in node.path}
        mask.append([column in seen for column in range(len(nodes) + 1)])
    return [node.token for node in nodes], parents, depths, mask
