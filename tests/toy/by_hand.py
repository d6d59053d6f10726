"""What a request may say, worked out token by token from the definitions: an oracle that shares no code with the
sampler but the noise.

Every token of an output is judged after the tokens that really stand before it, so a wrong one is found wherever it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from specbench.harness.engines.native.core.request import FinishReason, Request, SamplingParams
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.kernels.philox import PURPOSE_SAMPLE, uniform

from .compare import TOP2_TOLERANCE, dense_pass


def edited(logits_V: np.ndarray, prompt: Sequence[int], said: Sequence[int], s: SamplingParams) -> np.ndarray:
    """fp64 [V]: logits over the temperature of the token behind `prompt` and `said`; -inf: never drawn."""
    score_V = logits_V.astype(np.float64).copy()
    for token in range(len(score_V)):
        if (s.allowed_token_ids and token not in s.allowed_token_ids) or token in s.banned_token_ids:
            score_V[token] = -math.inf
        for word in s.bad_words:
            if token == word[-1] and list(said[len(said) - len(word) + 1 :]) == list(word[:-1]):
                score_V[token] = -math.inf
        if token in s.stop_token_ids and len(said) < s.min_tokens:
            score_V[token] = -math.inf
        score_V[token] += dict(s.logit_bias).get(token, 0.0)
        if token in prompt or token in said:
            score_V[token] *= s.repetition_penalty if score_V[token] <= 0 else 1 / s.repetition_penalty
        times = list(said).count(token)
        score_V[token] -= times * s.frequency_penalty + (times > 0) * s.presence_penalty
    if s.temperature == 0:
        return score_V
    score_V /= s.temperature
    likely_V = softmax(score_V)
    score_V[likely_V < s.min_p * likely_V.max()] = -math.inf
    order = np.argsort(-score_V, kind="stable")
    score_V[order[s.top_k or len(order) :]] = -math.inf
    if s.top_p < 1:
        mass = softmax(score_V)[order]
        score_V[order[mass.cumsum() - mass >= s.top_p]] = -math.inf
    return score_V


def softmax(score_V: np.ndarray) -> np.ndarray:
    weights_V = np.exp(score_V - score_V.max())
    return weights_V / weights_V.sum()


def assert_by_hand(target: LlamaModel, done: Request, max_model_len: int, where: str = "") -> None:
    """Every token is the best one where it stands, or a near-tie of it; the output ends where it must."""
    s, prompt, said = done.sampling, list(done.prompt_ids), list(done.output_ids)
    logits_TV = dense_pass(target, [*prompt, *said])[0][len(prompt) - 1 :].float().cpu().numpy()
    for index, token in enumerate(said):
        score_V = edited(logits_TV[index], prompt, said[:index], s)
        if s.temperature > 0:
            key = (torch.tensor([x]) for x in (s.seed, len(prompt) + index))
            noise_V = -np.log(-np.log1p(-uniform(*key, PURPOSE_SAMPLE, len(score_V))[0].double().numpy()))
            score_V = score_V + noise_V
        behind = score_V.max() - score_V[token]
        tolerance = TOP2_TOLERANCE * max(1.0, 1 / (s.temperature or 1))
        assert behind < tolerance, f"{where}: request {done.id} token {index} is {token}, {behind:.3g} behind the best"
    room = min(s.max_tokens, max_model_len - len(prompt))
    stops = [index for index, token in enumerate(said) if token in s.stop_token_ids]
    assert stops in ([], [len(said) - 1]), f"{where}: request {done.id} went on behind a stop id"
    assert len(said) == room or stops, f"{where}: request {done.id} ended with {len(said)} tokens of {room}"
    assert done.finish_reason == (FinishReason.STOP if stops else FinishReason.LENGTH), where
