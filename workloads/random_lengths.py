"""Random token ids with random lengths: for machine speed, not for language.

The range ratio means what it means to ``vllm bench``: a length is uniform over the integers of
[len * (1 - r), len * (1 + r)]. SGLang's ``bench_serving`` means [len * r, len] by the same flag, so figures
from the two are not comparable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from specbench.workloads.base import Prompt, Tokenizer, Workload, WorkloadRequest


def load(request: WorkloadRequest, tokenizer: Tokenizer | None = None) -> Workload:
    """``num_prompts`` prompts of uniform random ids below ``vocab_size``, each with its own lengths.

    Needs no tokenizer, so it also serves models that exist as shapes only. Raises ValueError for a range ratio outside
    [0, 1), a vocabulary size below 2, or lengths that cannot fit ``max_model_len``.
    """
    ratio = request.random_range_ratio
    output_len = request.output_len or request.random_output_len
    check(request, output_len)
    rng = np.random.default_rng(request.seed)
    input_lens = draw_lengths(rng, request.random_input_len, ratio, request.num_prompts)
    output_lens = draw_lengths(rng, output_len, 0.0 if request.output_len else ratio, request.num_prompts)
    prompts = random_prompts("random", zip(input_lens, output_lens, strict=True), request.vocab_size, rng)
    rule = (
        f"random token ids below {request.vocab_size}; input {request.random_input_len}, output {output_len} tokens, "
        f"each uniform in [len*(1-r), len*(1+r)] with r={ratio:g} as in vllm bench (SGLang's r means [len*r, len]); "
        f"no chat template; seed {request.seed}"
    )
    return Workload(name=request.name, prompts=prompts, rule=rule, source="generated", synthetic=True)


def random_prompts(
    name: str, lengths: Iterable[tuple[int, int]], vocab_size: int, rng: np.random.Generator
) -> tuple[Prompt, ...]:
    """Prompts ``name-0``, ``name-1``, .. of uniform random ids; ``lengths`` has (prompt, output) of each, in tokens."""
    return tuple(
        Prompt(
            id=f"{name}-{index}",
            token_ids=tuple(rng.integers(0, vocab_size, size=input_len).tolist()),
            max_tokens=int(max_tokens),
            text="",
        )
        for index, (input_len, max_tokens) in enumerate(lengths)
    )


def check(request: WorkloadRequest, output_len: int) -> None:
    ratio = request.random_range_ratio
    if not 0.0 <= ratio < 1.0:
        raise ValueError(
            f"random_range_ratio: {ratio} is not allowed; allowed: 0 or more, below 1 (vllm bench's meaning)"
        )
    if request.vocab_size < 2:
        raise ValueError(f"vocab_size: {request.vocab_size} is not allowed; allowed: the model's, 2 or more")
    longest = length_range(request.random_input_len, ratio)[1]
    longest += length_range(output_len, 0.0 if request.output_len else ratio)[1]
    if longest > request.max_model_len:
        raise ValueError(
            f"random_input_len: {request.random_input_len} and output length {output_len} with range ratio {ratio:g} "
            f"reach {longest} tokens; allowed: up to max_model_len {request.max_model_len}"
        )


def length_range(length: int, ratio: float) -> tuple[int, int]:
    """Shortest and longest length, both possible; never below one token."""
    return max(1, math.floor(length * (1 - ratio))), max(1, math.ceil(length * (1 + ratio)))


def draw_lengths(rng: np.random.Generator, length: int, ratio: float, count: int) -> np.ndarray:
    """``count`` lengths, uniform over :func:`length_range` with both ends: int64 [count]."""
    low, high = length_range(length, ratio)
    return rng.integers(low, high + 1, size=count)
