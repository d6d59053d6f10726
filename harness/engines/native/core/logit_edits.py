"""Logits edited before a token is drawn (spec/logit_edits.py), for every row of a step at once.

The verified rows of a request have different histories: row j sees the drafts before it as if they were output. A row's
history is counted again each round from the tokens that are on the device anyway, so no state has to follow acceptance.

Legend: B requests, R = B * Q rows, V vocabulary, S slots, L width of the token buffer, K drafts, N tokens before a row.
"""

from __future__ import annotations

from collections.abc import Set

import torch
from torch import Tensor

from specbench.harness.engines.native.core.edit_buffers import Edit
from specbench.harness.engines.native.core.state import RoundState
from specbench.kernels.buffers import Rows
from specbench.kernels.edit_logits import (
    add_drafts,
    ban_stops,
    ban_words,
    count_tokens,
    filter_min_p,
    follow_drafts,
    penalize,
)
from specbench.kernels.sample import without_nan


def edit_logits(logits_RV: Tensor, rows: Rows, position_R: Tensor, state: RoundState, edits: Set[Edit]) -> Tensor:
    """An fp32 copy, edited in vLLM's order. `position_R`: of the token that each row predicts; requests have equally
    many rows."""
    buffers, slot_B = state.edits, rows.slot_B
    slot_R = slot_B.unsqueeze(1).expand(-1, logits_RV.shape[0] // slot_B.shape[0]).reshape(-1)
    logits_RV = without_nan(logits_RV)
    if Edit.BIAS in edits:
        assert buffers.bias_SV is not None
        logits_RV += buffers.bias_SV.index_select(0, slot_R)
    if Edit.WORDS in edits:
        assert buffers.words_SWN is not None
        before_BQN = _tokens_before(rows, position_R, state, buffers.words_SWN.shape[2] - 1)
        ban_words(logits_RV, before_BQN.flatten(0, 1), buffers.words_SWN.index_select(0, slot_R))
    if Edit.MIN_TOKENS in edits:
        early_R = position_R < buffers.first_stop_S.index_select(0, slot_R)
        ban_stops(logits_RV, state.stop_SE.index_select(0, slot_R), early_R)
    if Edit.PENALTIES in edits:
        _penalize(logits_RV, rows, position_R, state)
    if Edit.MIN_P in edits:
        temperature_R, min_p_R = (x.index_select(0, slot_R) for x in (state.temperature_S, buffers.min_p_S))
        filter_min_p(logits_RV, temperature_R, min_p_R)
    return logits_RV


def _tokens_before(rows: Rows, position_R: Tensor, state: RoundState, num: int) -> Tensor:
    """int64 [B, Q, N]: the last output tokens before each row, -1 if there are fewer."""
    slot_B, position_BQ = rows.slot_B, position_R.view(rows.slot_B.shape[0], -1).long()
    at_BN = position_BQ[:, :1] - num + torch.arange(num, device=slot_B.device)
    known_BN = state.tokens_SL.index_select(0, slot_B).gather(1, at_BN.clamp(0, state.tokens_SL.shape[1] - 1))
    first_B = state.edits.prompt_len_S.index_select(0, slot_B)
    known_BN.masked_fill_((at_BN < first_B.unsqueeze(1)) | (at_BN < 0), -1)
    num_rows = position_BQ.shape[1]
    depth_BQ = (position_BQ - position_BQ[:, :1]).clamp(0, num_rows - 1)  # for padding rows it may be anything
    drafts_BK = state.drafts_SK[:, : num_rows - 1].index_select(0, slot_B)
    return follow_drafts(known_BN, depth_BQ, drafts_BK, _sees_drafts(rows, num_rows, state))


def _penalize(logits_RV: Tensor, rows: Rows, position_R: Tensor, state: RoundState) -> None:
    buffers, slot_B = state.edits, rows.slot_B
    logits_BQV = logits_RV.view(slot_B.shape[0], -1, logits_RV.shape[1])
    num_rows, vocab = logits_BQV.shape[1:]
    tokens_BL = state.tokens_SL.index_select(0, slot_B)
    at_L = torch.arange(tokens_BL.shape[1], device=tokens_BL.device)
    # The first row predicts what follows the last known token; later entries are leftovers of an earlier request.
    known_BL = at_L < position_R.view(-1, num_rows)[:, :1]
    in_prompt_BL = at_L < buffers.prompt_len_S.index_select(0, slot_B).unsqueeze(1)
    prompt_BV = count_tokens(tokens_BL, known_BL & in_prompt_BL, vocab)
    output_BV = count_tokens(tokens_BL, known_BL & ~in_prompt_BL, vocab)
    drafts_BK = state.drafts_SK[:, : num_rows - 1].index_select(0, slot_B)  # in a chain, a round may verify fewer
    output_BQV = add_drafts(output_BV, drafts_BK, _sees_drafts(rows, num_rows, state))
    columns = (buffers.repetition_S, buffers.frequency_S, buffers.presence_S)
    penalize(logits_BQV, prompt_BV, output_BQV, *(x.index_select(0, slot_B) for x in columns))


def _sees_drafts(rows: Rows, num_rows: int, state: RoundState) -> Tensor:
    """bool [B, Q, K]: the drafts before each row; in a tree, its own node's and its ancestors'. None for a prompt's
    rows."""
    is_decode_B11 = (rows.num_drafts_B > 0).view(-1, 1, 1)
    if state.tree is not None:
        return state.tree.mask_SDD.index_select(0, rows.slot_B)[:, :, 1:] & is_decode_B11
    index_Q = torch.arange(num_rows, device=rows.slot_B.device)
    return (index_Q[: num_rows - 1] < index_Q.unsqueeze(1)) & is_decode_B11
