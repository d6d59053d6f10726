"""ShareGPT's lengths without its text: random token ids, as long as real prompts and answers are.

For models that exist as shapes only (random weights): no tokenizer is needed, and batches are as ragged as ShareGPT
makes them. The lengths are in ``sharegpt_lengths.toml``, which says how they were measured.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from specbench.workloads.base import Tokenizer, Workload, WorkloadRequest, require_enough
from specbench.workloads.guarded import parse_toml
from specbench.workloads.random_lengths import random_prompts

LENGTHS = Path(__file__).with_name("sharegpt_lengths.toml")


def load(request: WorkloadRequest, tokenizer: Tokenizer | None = None) -> Workload:
    """``num_prompts`` conversations drawn without replacement; those that ``max_model_len`` cannot hold are left out.

    ``request.output_len`` replaces every output length. Raises ValueError for a vocabulary size below 2 or more prompts
    than there are.
    """
    if request.vocab_size < 2:
        raise ValueError(f"vocab_size: {request.vocab_size} is not allowed; allowed: the model's, 2 or more")
    lengths = measured_lengths()
    pairs = [(prompt, request.output_len or output) for prompt, output in lengths]
    pairs = [pair for pair in pairs if sum(pair) <= request.max_model_len]
    rule = rule_words(request, len(lengths))
    require_enough(request.name, wanted=request.num_prompts, available=len(pairs), rule=rule)
    chosen = random.Random(request.seed).sample(pairs, request.num_prompts)
    prompts = random_prompts("sharegpt-length", chosen, request.vocab_size, np.random.default_rng(request.seed))
    return Workload(name=request.name, prompts=prompts, rule=rule, source=LENGTHS.name, synthetic=True)


def measured_lengths() -> list[tuple[int, int]]:
    """(prompt, output) in tokens, in stored order."""
    return [(prompt, output) for prompt, output in parse_toml(LENGTHS.read_text())["lengths"]]


def rule_words(request: WorkloadRequest, num_lengths: int) -> str:
    limit = f"output length {request.output_len} for all" if request.output_len else "output length = the answer's"
    return (
        f"random token ids below {request.vocab_size} with the lengths of {num_lengths:,} ShareGPT conversations "
        f"(first question and answer, SmolLM2's tokenizer, no chat template); {limit}; prompt + output <= "
        f"{request.max_model_len}; drawn with seed {request.seed}"
    )
