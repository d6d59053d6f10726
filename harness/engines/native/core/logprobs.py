"""Log-probabilities of output and prompt tokens, from the target's unmodified logits at temperature 1 (vLLM's
raw_logprobs).

Those of a round are in one block next to its status and go to the host with it. A request sees the ones of the tokens
that it keeps, whatever else was verified.

Legend: B requests, Q rows of a request, R = B * Q, V vocabulary, W maximum tokens of a request in one round, N columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.score import last_hidden
from specbench.harness.spec.sampling import MAX_LOGPROBS

_ROWS_AT_ONCE = 256  # of a prompt: their logits, twice in fp32, are 250 MiB with 128,256 ids
NUM_COLUMNS = 1 + 2 * MAX_LOGPROBS  # its own, then the best ones' and their ids


class TokenLogprobs(NamedTuple):
    """`logprob`: of the token itself; `top`: (id, log-probability) of the requested number of tokens, likeliest
    first."""

    logprob: float
    top: tuple[tuple[int, float], ...]

    @staticmethod
    def of(columns: Sequence[float], num: int) -> TokenLogprobs:
        ids, best = columns[1 + MAX_LOGPROBS : 1 + MAX_LOGPROBS + num], columns[1 : 1 + num]
        return TokenLogprobs(columns[0], tuple((int(token), value) for token, value in zip(ids, best, strict=True)))


def logprob_columns(logits_RV: Tensor, ids_R: Tensor) -> Tensor:
    """fp32 [R, N] of these tokens; ids are exact in fp32 for every vocabulary below 2^24. A small vocabulary leaves
    columns 0."""
    all_RV = logits_RV.float().log_softmax(-1)
    best = all_RV.topk(min(MAX_LOGPROBS, all_RV.shape[1]), dim=1)
    columns_RN = torch.zeros(all_RV.shape[0], NUM_COLUMNS, device=all_RV.device)
    columns_RN[:, :1] = all_RV.gather(1, ids_R.unsqueeze(1))
    columns_RN[:, 1 : 1 + best.values.shape[1]] = best.values
    columns_RN[:, 1 + MAX_LOGPROBS : 1 + MAX_LOGPROBS + best.indices.shape[1]] = best.indices.float()
    return columns_RN


def keep_logprobs(logits_RV: Tensor, sampled_R: Tensor, path_BW: Tensor | None, out_BWN: Tensor) -> None:
    """Log-probabilities of the tokens that each request may keep from a round; for a tree, along the accepted path."""
    columns_BQN = logprob_columns(logits_RV, sampled_R).view(out_BWN.shape[0], -1, NUM_COLUMNS)
    if path_BW is not None:
        columns_BQN = columns_BQN.gather(1, path_BW.unsqueeze(2).expand(-1, -1, NUM_COLUMNS))
    out_BWN.copy_(columns_BQN)


def logprobs_of_prompt(target: LlamaModel, ids: Sequence[int], num: int) -> list[TokenLogprobs | None]:
    """Log-probabilities of each prompt token except the first, from a separate plain pass that does not use the rounds'
    buffers."""
    if len(ids) == 1:
        return [None]
    hidden_TH = last_hidden(target, ids[:-1], len(ids) - 1)
    ids_T = torch.tensor(ids[1:], device=hidden_TH.device)
    pieces = zip(hidden_TH.split(_ROWS_AT_ONCE), ids_T.split(_ROWS_AT_ONCE), strict=True)
    columns = [each for h_RH, ids_R in pieces for each in logprob_columns(target.logits(h_RH), ids_R).tolist()]
    return [None, *(TokenLogprobs.of(each, num) for each in columns)]
