"""Changes to the target's logits before a token is drawn: plain torch without a host read, for CPU and CUDA.

Shapes depend on the layout alone, so a graph can hold every one of them. All write into the logits they are given,
which are fp32 and hold no NaN.
Legend: R rows, V vocabulary, E stop ids of a row (padded with -1), B requests, Q rows of a request, K drafts, L tokens,
W bad words of a row, N tokens of a word or before a row.
"""

import math

import torch
from torch import Tensor


def ban_stops(logits_RV: Tensor, stop_RE: Tensor, early_R: Tensor) -> None:
    """-inf for the stop ids of the rows that come too early to end a request (bool)."""
    banned_RE = early_R.unsqueeze(1) & (stop_RE >= 0)
    added_RE = torch.zeros(stop_RE.shape, device=stop_RE.device).masked_fill_(banned_RE, -math.inf)
    logits_RV.scatter_add_(1, stop_RE.clamp(min=0), added_RE)


def ban_words(logits_RV: Tensor, before_RN: Tensor, words_RWN: Tensor) -> None:
    """-inf for the last token of each bad word whose other tokens precede the row.

    `before_RN`: the tokens before each row, -1 where there is none; `words_RWN`: end in the last column, with -1 before
    a shorter one, which matches anything, and throughout a spare one.
    """
    first_RWN, last_RW = words_RWN[..., :-1], words_RWN[..., -1]
    matches_RW = ((first_RWN == before_RN.unsqueeze(1)) | (first_RWN < 0)).all(2) & (last_RW >= 0)
    added_RW = torch.zeros(last_RW.shape, device=last_RW.device).masked_fill_(matches_RW, -math.inf)
    logits_RV.scatter_add_(1, last_RW.clamp(min=0), added_RW)


def follow_drafts(before_BN: Tensor, depth_BQ: Tensor, drafts_BK: Tensor, sees_BQK: Tensor) -> Tensor:
    """[B, Q, N]: the tokens before each row, which sees these drafts behind its request's last tokens. `depth_BQ`: how
    many it sees; draft k is that of row k + 1."""
    path_BQK = torch.zeros(sees_BQK.shape, dtype=drafts_BK.dtype, device=drafts_BK.device)
    index_BQK = (depth_BQ[:, 1:] - 1).clamp(min=0).unsqueeze(1).expand_as(sees_BQK)
    path_BQK.scatter_add_(2, index_BQK, drafts_BK.unsqueeze(1) * sees_BQK)
    all_BQH = torch.cat([before_BN.unsqueeze(1).expand(-1, depth_BQ.shape[1], -1), path_BQK], dim=2)
    last_N = torch.arange(before_BN.shape[1], device=before_BN.device)
    return all_BQH.gather(2, depth_BQ.unsqueeze(2) + last_N)


def count_tokens(tokens_BL: Tensor, counted_BL: Tensor, vocab: int) -> Tensor:
    """fp32 [B, V]: how often each token occurs among those that count."""
    counts_BV = torch.zeros(tokens_BL.shape[0], vocab, device=tokens_BL.device)
    # What does not count may be anything, also no token of the vocabulary.
    return counts_BV.scatter_add_(1, tokens_BL.clamp(0, vocab - 1), counted_BL.float())


def add_drafts(counts_BV: Tensor, drafts_BK: Tensor, sees_BQK: Tensor) -> Tensor:
    """fp32 [B, Q, V]: the counts of each row, which sees these drafts behind its request's tokens."""
    num_requests, num_rows, num_drafts = sees_BQK.shape
    counts_BQV = counts_BV.unsqueeze(1).expand(-1, num_rows, -1).contiguous()
    index_BQK = drafts_BK.clamp(0, counts_BV.shape[1] - 1).unsqueeze(1).expand(-1, num_rows, -1)
    return counts_BQV.scatter_add_(2, index_BQK, (sees_BQK & (drafts_BK >= 0).unsqueeze(1)).float())


def penalize(
    logits_BQV: Tensor,
    prompt_BV: Tensor,
    output_BQV: Tensor,
    repetition_B: Tensor,
    frequency_B: Tensor,
    presence_B: Tensor,
) -> None:
    """As in vLLM: repetition first, over tokens of prompt and output; then frequency and presence, over the output's.

    `prompt_BV`, `output_BQV`: counts.
    """
    is_output_BQV = output_BQV > 0
    repetition_B11, frequency_B11, presence_B11 = (x.view(-1, 1, 1) for x in (repetition_B, frequency_B, presence_B))
    factor_BQV = torch.where(logits_BQV > 0, 1 / repetition_B11, repetition_B11)
    logits_BQV.mul_(torch.where(is_output_BQV | (prompt_BV > 0).unsqueeze(1), factor_BQV, 1.0))
    logits_BQV.sub_(frequency_B11 * output_BQV).sub_(presence_B11 * is_output_BQV)


def filter_min_p(logits_RV: Tensor, temperature_R: Tensor, min_p_R: Tensor) -> None:
    """-inf where softmax(logits / temperature) is below min_p times its largest. Off for min_p 0 and temperature 0."""
    is_on_R = (temperature_R > 0) & (min_p_R > 0)
    reach_R = torch.where(is_on_R, temperature_R * min_p_R.log(), -math.inf)
    logits_RV.masked_fill_(logits_RV < logits_RV.amax(1, keepdim=True) + reach_R.unsqueeze(1), -math.inf)
