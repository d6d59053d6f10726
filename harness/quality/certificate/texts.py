"""Texts scored by the target in fp32 and in its own dtype, without the engine; a text of several arms is scored once.

Legend: R output positions, V vocabulary, A arrangements of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.harness.engines.load import PromptRequest
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.quality.certificate.scores import decisive_scores, output_logits, regrets
from specbench.harness.quality.certificate.tolerance import arranged_logits


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredText:
    """fp32 on the host, in logits. For sampled requests, the scores include the shared noise."""

    score_R: Tensor  # of each token
    regret_R: Tensor  # how far it is below the best of its position; inf if the scores are NaN
    target_regret_AR: Tensor  # of the target's own choices, by arrangement of rows; A is 0 for fp32


class TextScorer:
    """`target` as the engine runs it, `exact` its fp32 twin."""

    def __init__(self, target: LlamaModel, exact: LlamaModel):
        self._target, self._exact = target, exact
        self._known: dict[tuple[int, tuple[int, ...]], ScoredText] = {}

    def scored(self, request: PromptRequest, output: Sequence[int]) -> ScoredText:
        """`request`: as every arm got it; requests are identified by their ids."""
        key = request.id, tuple(output)
        if key not in self._known:
            self._known[key] = self._score(request, key[1])
        return self._known[key]

    def _score(self, request: PromptRequest, output: tuple[int, ...]) -> ScoredText:
        sampling, prompt = request.sampling, request.prompt_ids
        exact_RV = output_logits(self._exact, prompt, output)
        score_RV = decisive_scores(exact_RV, len(prompt), sampling.temperature, sampling.seed)
        arranged = arranged_logits(self._target, prompt, output)
        # Of the tokens that the target's own passes would have chosen, under the same sampling noise.
        target = [regrets(score_RV, (logits_RV + (score_RV - exact_RV)).argmax(dim=1)) for logits_RV in arranged]
        token_R = torch.tensor(output, device=score_RV.device)
        return ScoredText(
            score_R=score_RV.gather(1, token_R.unsqueeze(1)).squeeze(1).cpu(),
            regret_R=torch.nan_to_num(regrets(score_RV, token_R), nan=float("inf")).cpu(),
            target_regret_AR=torch.stack(target).cpu() if target else torch.empty(0, len(output)),
        )
