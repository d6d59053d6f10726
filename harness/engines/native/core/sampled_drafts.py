"""Drafts that are drawn (`draft_sample_method=probabilistic`): their distributions, kept from the round that draws them
to the round that verifies them.

Only sampled requests draw, in batches that have at least one; greedy requests keep greedy drafts. A drafter's logits
are edited as its request specifies (biases, allowed ids, temperature, min-p, top-k, top-p), which increases acceptance;
penalties, min tokens and bad words are ignored. Acceptance is exact for any q (kernels/reject_drafts.py).

Noise: a draft's noise is keyed by the round's first position and the drafter's row, so that no round reuses noise that
an earlier one decided by; coins are keyed by the position they decide.

Legend: B requests, R rows, S slots, N drafter rows of a round, V target vocabulary, Vd the drafter's, K drafts, C
maximum drafts after one row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specbench.harness.engines.native.core.edit_buffers import Edit
from specbench.harness.engines.native.core.sampler import Mode, SamplingMode, filtered
from specbench.harness.engines.native.core.state import RoundState
from specbench.kernels.buffers import Rows
from specbench.kernels.edit_logits import filter_min_p
from specbench.kernels.gumbel_noise import add_gumbel
from specbench.kernels.reject_drafts import chain_children, reject_drafts, tree_children
from specbench.kernels.sample import sample, without_nan
from specbench.kernels.tree_draw import draw_level, pass_rows
from specbench.kernels.tree_expand import TreePool

_KEY_BITS, _LANE_BITS = 32, 24  # of a noise key; of the position in it, above which is the lane
_COINS, _DRAFTS = 1, 2  # lanes; each drafter row of a round has one from _DRAFTS on; 0 is the target's own noise


class SampledDrafts:
    """One engine's buffers of every slot's distributions q. Allocated for the first random batch; addresses never
    change after that."""

    def __init__(self, state: RoundState, vocab_size: int, d2t_V: Tensor | None):
        """`vocab_size`: the target's; `d2t_V`: what to add to a drafter's id to get the target's."""
        self._state, self._vocab_size, self._d2t_V = state, vocab_size, d2t_V
        self._target_id_V = None if d2t_V is None else torch.arange(len(d2t_V), device=state.device) + d2t_V
        self._num_rows = state.drafts_SK.shape[1]
        if state.tree is not None:
            self._num_rows = 1 + (state.tree.shape.depth - 1) * state.tree.shape.topk
        assert state.tokens_SL.shape[1] <= 1 << _LANE_BITS, "positions would reach into the lanes"
        assert _DRAFTS + self._num_rows <= 1 << (_KEY_BITS - _LANE_BITS), "more lanes than a key has room for"
        self._has_room = False

    @staticmethod
    def draws(mode: Mode) -> bool:
        """Whether a batch of this mode has a sampled request."""
        return mode.drawing is not SamplingMode.GREEDY

    def make_room(self) -> None:
        """Allocates buffers before the first launch that draws."""
        if self._has_room:
            return
        self._has_room, s = True, self._state
        num_slots, num_drafts = s.drafts_SK.shape
        width = self._vocab_size if self._d2t_V is None else len(self._d2t_V)
        self._q_SNV = torch.zeros(num_slots, self._num_rows, width, device=s.device)
        self._row_SK = torch.zeros(num_slots, num_drafts, dtype=torch.int64, device=s.device)
        self._row_SK += torch.arange(num_drafts, device=s.device) if s.tree is None else 0

    # -- drafting ----------------------------------------------------------------------------------------------------

    def draw(self, logits_BV: Tensor, slot_B: Tensor, step: int, mode: Mode) -> None:
        """Draws draft number `step` (1..K) of a chain into its slot; -1 if no token is allowed."""
        s = self._state
        logits_BV, is_random_B = self._changed(logits_BV, slot_B, mode)
        self._q_SNV[slot_B, step - 1] = logits_BV.softmax(dim=1)
        key_B = s.n_S.index_select(0, slot_B).long() + self._lane(_DRAFTS + step - 1)
        ids_B = sample(logits_BV, is_random_B.float(), s.seed_S.index_select(0, slot_B), key_B, all_greedy=False)
        token_B = ids_B if self._d2t_V is None else ids_B + self._d2t_V[ids_B]
        s.drafts_SK[slot_B, step - 1] = token_B.masked_fill_(_is_empty(logits_BV), -1)

    def draw_level(self, logits_RV: Tensor, slot_B: Tensor, pool: TreePool, level: int, mode: Mode) -> None:
        """A tree's level (1 .. S) from its pass' logits, in place of `expand_tree`."""
        s, topk = self._state, pool.topk
        first, num = (0, 1) if level == 1 else (1 + (level - 2) * topk, topk)
        slot_R = slot_B.repeat_interleave(num)
        logits_RV, is_random_R = self._changed(logits_RV, slot_R, mode)
        self._q_SNV[slot_B, first : first + num] = logits_RV.softmax(dim=1).view(-1, num, logits_RV.shape[1])
        lane_R = torch.arange(_DRAFTS + first, _DRAFTS + first + num, device=s.device).repeat(len(slot_B))
        key_R = s.n_S.index_select(0, slot_R).long() + (lane_R << _LANE_BITS)
        logits_RV = torch.where(is_random_R.unsqueeze(1), logits_RV.log_softmax(dim=1), logits_RV)
        draw_level(logits_RV, self._d2t_V, pool, level, is_random_R, (s.seed_S.index_select(0, slot_R), key_R))

    def note_tree(self, slot_B: Tensor, pool: TreePool) -> None:
        """Called after `build_tree`: which row's q each node was drawn from."""
        self._row_SK[slot_B] = pass_rows(pool, self._row_SK.shape[1])

    def _changed(self, logits_RV: Tensor, slot_R: Tensor, mode: Mode) -> tuple[Tensor, Tensor]:
        """fp32 logits divided by the temperature, and which rows are sampled; rows of greedy requests choose as without
        drawing."""
        s = self._state
        temperature_R = s.temperature_S.index_select(0, slot_R)
        is_random_R = temperature_R > 0
        logits_RV = without_nan(logits_RV)
        if Edit.BIAS in mode.edits:
            assert s.edits.bias_SV is not None
            bias_RV = s.edits.bias_SV.index_select(0, slot_R)
            bias_RV = bias_RV if self._target_id_V is None else bias_RV.index_select(1, self._target_id_V)
            logits_RV = logits_RV + bias_RV.masked_fill_(~is_random_R.unsqueeze(1), 0.0)
        if Edit.MIN_P in mode.edits:
            filter_min_p(logits_RV, temperature_R, s.edits.min_p_S.index_select(0, slot_R))
        logits_RV = filtered(logits_RV, slot_R, temperature_R, s, mode.drawing)
        return logits_RV / torch.where(is_random_R, temperature_R, 1.0).unsqueeze(1), is_random_R

    # -- verification ------------------------------------------------------------------------------------------------

    def tokens(self, logits_RV: Tensor, rows: Rows, slot_R: Tensor, position_R: Tensor, mode: Mode) -> Tensor:
        """Token of each verified row (int64 [R]): the accepted draft after it, else a draw from the residual, or from p
        if there is no draft. Greedy rows: the best. `position_R`: of the token that each row predicts."""
        s = self._state
        temperature_R = s.temperature_S.index_select(0, slot_R)
        is_random_R1 = (temperature_R > 0).unsqueeze(1)
        seed_R, position_R = s.seed_S.index_select(0, slot_R), position_R.to(torch.int64)
        logits_RV = filtered(logits_RV, slot_R, temperature_R, s, mode.drawing)
        p_RV = (without_nan(logits_RV) / torch.where(is_random_R1, temperature_R.unsqueeze(1), 1.0)).softmax(dim=1)
        draft_RC, q_RV = self._drafts(rows, len(logits_RV) // len(rows.slot_B))
        draft_RC = draft_RC.masked_fill(~is_random_R1, -1)
        coin_RC = self._coins(draft_RC, seed_R, position_R)
        taken_R, p_RV = reject_drafts(p_RV, q_RV, draft_RC, coin_RC)
        logits_RV = torch.where(is_random_R1, p_RV.log(), logits_RV)
        drawn_R = sample(logits_RV, is_random_R1.squeeze(1).float(), seed_R, position_R, all_greedy=False)
        return torch.where(taken_R >= 0, taken_R, drawn_R)

    def _drafts(self, rows: Rows, num_rows: int) -> tuple[Tensor, Tensor]:
        """The drafts after each of a request's rows (int64 [R, C]) and the distributions they were drawn from (fp32 [R,
        V])."""
        s, slot_B = self._state, rows.slot_B
        drafts_BK = s.drafts_SK.index_select(0, slot_B)
        if s.tree is None:
            # A round may verify fewer drafts than there are, and the last row's token is sampled whatever follows it.
            column_K = torch.arange(drafts_BK.shape[1], device=s.device)
            drafts_BK.masked_fill_(column_K >= rows.num_drafts_B.unsqueeze(1), -1)
            draft_BQC = chain_children(drafts_BK)[:, :num_rows]
            first_BQ = torch.arange(num_rows, device=s.device).clamp(max=drafts_BK.shape[1] - 1)
            first_BQ = first_BQ.expand(len(slot_B), -1)
        else:
            drafts_BK.masked_fill_((rows.num_drafts_B <= 0).unsqueeze(1), -1)
            parent_BK = s.tree.parent_SD.index_select(0, slot_B)[:, 1:]
            draft_BQC, index_BQC = tree_children(drafts_BK, parent_BK, s.tree.shape.topk)
            first_BQ = index_BQC[:, :, 0]
        row_BQ = self._row_SK.index_select(0, slot_B).gather(1, first_BQ)
        row_BQ += (slot_B * self._q_SNV.shape[1]).unsqueeze(1)
        q_RV = self._q_SNV.flatten(0, 1).index_select(0, row_BQ.flatten())
        if self._target_id_V is not None:
            q_RV = q_RV.new_zeros(len(q_RV), self._vocab_size).index_copy_(1, self._target_id_V, q_RV)
        return draft_BQC.flatten(0, 1), q_RV

    def _coins(self, draft_RC: Tensor, seed_R: Tensor, position_R: Tensor) -> Tensor:
        """Uniform numbers, fp32, in the shape of the drafts."""
        nought_RC = torch.zeros(draft_RC.shape, device=draft_RC.device)
        all_R = torch.ones_like(seed_R, dtype=torch.bool)
        noise_RC = add_gumbel(nought_RC, all_R, seed_R, position_R + self._lane(_COINS))
        return torch.exp(-torch.exp(-noise_RC))

    @staticmethod
    def _lane(lane: int) -> int:
        return lane << _LANE_BITS


def _is_empty(logits_RV: Tensor) -> Tensor:
    return logits_RV.amax(dim=1) == float("-inf")
