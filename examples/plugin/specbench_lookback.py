"""Drafts what followed the last earlier occurrence of the current token: `specbench run -s lookback:k=3`."""

from dataclasses import dataclass

import torch

from specbench.harness.engines.native.core.strategy import Drafter, Phase, Strategy


@dataclass(frozen=True, kw_only=True)
class Lookback(Strategy):
    name, graph, depth_option, cover_options = "lookback", "one_and_full", "k", "k=3"  # documented in StrategyKind
    k: int = 3

    def make_drafter(self, resources):
        return LookbackDrafter(self.k, resources.state)


class LookbackDrafter(Drafter):
    def __init__(self, num_drafts, state):
        self.num_drafts, self.state = num_drafts, state

    def phases(self, batch):
        return [Phase("draft_first", self._propose)]

    def _propose(self, batch):
        """Runs only on the device, so that a graph can contain it. Legend: B requests, S slots, L longest text, K
        drafts."""
        slot_B = batch.rows.slot_B
        text_BL, last_B1 = self.state.tokens_SL[slot_B], self.state.n_S[slot_B].long().unsqueeze(1)
        index_L = torch.arange(text_BL.shape[1], device=text_BL.device)
        is_match_BL = (text_BL == text_BL.gather(1, last_B1)) & (index_L < last_B1)
        found_B1 = torch.where(is_match_BL, index_L, -1).amax(1, keepdim=True)
        next_BK = found_B1 + 1 + index_L[: self.num_drafts]
        draft_BK = text_BL.gather(1, next_BK.clamp(max=text_BL.shape[1] - 1))
        self.state.drafts_SK[slot_B] = torch.where((found_B1 >= 0) & (next_BK <= last_B1), draft_BK, -1)
