"""How far a round may write beyond a request's tokens: what pages and buffers must cover."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.harness.engines.native.core.tree import TreeShape


@dataclass(frozen=True, slots=True)
class Lookahead:
    """Positions, counted from n, the tokens with KV before the round."""

    emitted: int  # most tokens a round adds
    reach: int  # positions n .. n+reach-1 may be written by verification and drafting
    overhang: int  # most positions written beyond a request's own limit

    @staticmethod
    def of(num_drafts: int, tree: TreeShape | None) -> Lookahead:
        """A chain verifies up to n+K and drafts up to K-1 beyond the new n, which is at most n+K+1."""
        if tree is None:
            return Lookahead(num_drafts + 1, 2 * num_drafts + 1, num_drafts)
        return Lookahead(tree.depth + 1, tree.reach, tree.reach)

    @staticmethod
    def of_one_pass(num_drafts: int) -> Lookahead:
        """Placeholders follow the verified rows, n to n+K, regardless of acceptance: K-1 more, up to n+2K-1. The last n
        of a request is two below its limit."""
        return Lookahead(num_drafts + 1, 2 * num_drafts, max(num_drafts, 2 * num_drafts - 2))
