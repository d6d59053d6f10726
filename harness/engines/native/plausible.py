"""Whether a loaded model predicts plain English better than a uniform guess. Incorrectly read weights do not."""

from __future__ import annotations

import math

import torch

from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.score import last_logits
from specbench.harness.store.arm_record import NOT_PLAUSIBLE
from specbench.workloads.base import Tokenizer

MIN_GAIN = 1.5
"""Nats per token above a uniform guess. SmolLM2-135M-Instruct is 8.9 above it on this text, in bf16 and fp32. Cast to
int8 without scales it is 4.4 below, with random matrices of the same spread 8.5 below, with the embedding one row off
1.2 above. Less harm is not seen: with the rotary halves of queries and keys mixed up it is still 7.3 above."""
_MOST_TOKENS = 128
_TEXT = (
    "The sun rises in the east and sets in the west. In the morning, most people get up, eat their breakfast, and go "
    "to work or to school. In the evening they come home, have dinner with their family, and go to bed. Once upon a "
    "time there was a little girl who lived in a small house at the edge of the forest with her mother and her father."
)


@torch.inference_mode()
def implausible(target: LlamaModel, tokenizer: Tokenizer) -> str:
    """The mark of a model whose mean log-probability of a fixed text is hardly above a uniform guess; else empty."""
    vocab_size = target.config.vocab_size
    ids = tokenizer.encode(_TEXT)[: min(_MOST_TOKENS, target.config.max_position)]
    if len(ids) < 2:
        return ""
    if max(ids) >= vocab_size:
        return f"{NOT_PLAUSIBLE}: the tokenizer has id {max(ids)}, the model ids below {vocab_size}"
    logprobs_CV = last_logits(target, ids[:-1], len(ids) - 1).log_softmax(-1)
    wanted_C1 = torch.tensor(ids[1:], device=logprobs_CV.device)[:, None]
    mean, guess = logprobs_CV.gather(1, wanted_C1).mean().item(), -math.log(vocab_size)
    if mean >= guess + MIN_GAIN:
        return ""
    return f"{NOT_PLAUSIBLE}: {mean:.2f} nats per token of plain English, a uniform guess has {guess:.2f}"
