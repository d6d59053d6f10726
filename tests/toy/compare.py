"""What "the same output" means: identical, or the first difference stands where the target itself is undecided.

Arithmetic differs with the number of rows, so a token may flip where the two best candidates are closer than the
tolerance. Everything before the flip must agree; what follows it is another text.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specbench.harness.engines.native.core.request import SamplingParams
from specbench.harness.engines.native.models.forward import ForwardBatch, KVCache
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.kernels.attention.torch_attention import TorchAttention
from specbench.kernels.philox import PURPOSE_SAMPLE, uniform
from specbench.kernels.sample import filter_top_k_top_p, gumbel_ref

TOP2_TOLERANCE = 1e-4  # fp32 logits


def dense_pass(
    target: LlamaModel, ids: Sequence[int], chunks: Sequence[int] | None = None, features: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Logits [T, V] (and features [T, 3H]) of every position, computed chunk by chunk over a single page."""
    c, device = target.config, target.device
    shape = (1, len(ids), c.num_kv_heads, c.head_dim)
    caches = [KVCache(*(torch.zeros(shape, dtype=target.dtype, device=device) for _ in "kv")) for _ in target.layers]
    attention = target.attention(TorchAttention(), len(ids))
    logits, feats, start = [], [], 0
    for size in chunks or [len(ids)]:
        batch = ForwardBatch.of_one_request(ids[start : start + size], start, device)
        out = torch.empty(size, 3 * c.hidden_size, dtype=target.dtype, device=device) if features else None
        logits.append(target.logits(target.forward(batch, attention, caches, out)))
        feats.append(out)
        start += size
    assert start == len(ids)
    return torch.cat(logits), torch.cat(feats) if features else None  # type: ignore[arg-type]


def top2_gap(target: LlamaModel, context: Sequence[int], sampling: SamplingParams) -> float:
    """How far the chosen next token of `context` lies above the second, in logits (times temperature if sampled)."""
    scores_1V = dense_pass(target, context)[0][-1:].float()
    if sampling.temperature > 0:
        column = [
            torch.tensor([x], device=scores_1V.device) for x in (sampling.temperature, sampling.top_k, sampling.top_p)
        ]
        scores_1V = filter_top_k_top_p(scores_1V, *column)
        seed, position = (torch.tensor([x], device=scores_1V.device) for x in (sampling.seed, len(context)))
        noise_1V = gumbel_ref(uniform(seed, position, PURPOSE_SAMPLE, scores_1V.shape[1]))
        scores_1V = scores_1V + noise_1V * sampling.temperature
    best, second = scores_1V[0].topk(2).values.tolist()
    return best - second


def assert_same_output(
    target: LlamaModel,
    prompt: Sequence[int],
    sampling: SamplingParams,
    actual: Sequence[int],
    expected: Sequence[int],
    where: str = "",
    tolerance: float = TOP2_TOLERANCE,
) -> None:
    """The definition above; a missing or surplus token is never a near-tie."""
    if list(actual) == list(expected):
        return
    same = next((i for i, (a, b) in enumerate(zip(actual, expected, strict=False)) if a != b), None)
    assert same is not None, f"{where}: {len(actual)} tokens, {len(expected)} expected, the shorter is a prefix"
    gap = top2_gap(target, [*prompt, *expected[:same]], sampling)
    assert gap < tolerance, f"{where}: token {same} is {actual[same]}, expected {expected[same]}, top-2 gap {gap:.2e}"
