"""ShareGPT with vLLM's limits.

"ShareGPT" is a different set in every tool, so the rule is spelt out in :func:`rule_words` and printed under every
table. Limits are those of ``vllm bench`` (``benchmarks/datasets.py``, is_valid_sequence). Two differences are
intentional: a record counts only if a person speaks first and the model answers (vLLM sends the first turn no matter
who wrote it, and about a third of the records begin in the middle of a conversation, with the model), and the chat
template is applied.
"""

from __future__ import annotations

import random

from specbench.workloads.assets.resolve import ResolvedAsset, resolve
from specbench.workloads.base import Prompt, Tokenizer, Workload, WorkloadRequest, require_enough
from specbench.workloads.sharegpt_file import Exchange, first_exchanges

MIN_TOKENS = 4
MAX_PROMPT_TOKENS = 1024
MAX_TOTAL_TOKENS = 2048


def load(request: WorkloadRequest, tokenizer: Tokenizer) -> Workload:
    """``num_prompts`` first questions; each may answer with as many tokens as its recorded answer has.

    ``request.output_len`` replaces that length (and, as in vLLM, its lower limit). Tokenised only as far as needed.
    """
    asset = resolve(request.path or "sharegpt")
    return sample(asset, first_exchanges(asset.path, asset.sha256), request, tokenizer)


def sample(
    asset: ResolvedAsset, order: list[Exchange], request: WorkloadRequest, tokenizer: Tokenizer, subset: str = ""
) -> Workload:
    """The same from these exchanges only; `subset` opens the rule and says which they are. ``order`` is shuffled."""
    random.Random(request.seed).shuffle(order)
    prompts: list[Prompt] = []
    for exchange in order:
        prompt = as_prompt(exchange, request, tokenizer)
        if prompt is not None:
            prompts.append(prompt)
        if len(prompts) == request.num_prompts:
            break
    rule = subset + rule_words(request, len(order))
    require_enough(request.name, wanted=request.num_prompts, available=len(prompts), rule=rule)
    source = f"{asset.source} sha256:{asset.sha256}"
    return Workload(name=request.name, prompts=tuple(prompts), rule=rule, source=source)


def rule_words(request: WorkloadRequest, num_candidates: int) -> str:
    limit = f"output length {request.output_len} for all" if request.output_len else "output length = the answer's"
    shortest = "" if request.output_len else f", output >= {MIN_TOKENS}"
    return (
        f"ShareGPT, vLLM's limits: {MIN_TOKENS} <= prompt <= {MAX_PROMPT_TOKENS}{shortest}, prompt + output <= "
        f"{MAX_TOTAL_TOKENS} (raw tokens of the first human turn and of the first answer, without template); of "
        f"{num_candidates:,} records whose first two turns are human, gpt; {limit}; chat template applied; "
        f"templated prompt + output <= "
        f"{request.max_model_len}; shuffled with seed {request.seed}"
    )


def as_prompt(exchange: Exchange, request: WorkloadRequest, tokenizer: Tokenizer) -> Prompt | None:
    """The prompt, or None if the rule excludes the record. Lengths are counted with ``encode``, as in vLLM."""
    prompt_len = len(tokenizer.encode(exchange.question))
    if not MIN_TOKENS <= prompt_len <= MAX_PROMPT_TOKENS:
        return None
    answer_len = request.output_len or len(tokenizer.encode(exchange.answer))
    too_short = answer_len < MIN_TOKENS and not request.output_len
    if too_short or prompt_len + answer_len > MAX_TOTAL_TOKENS:
        return None
    token_ids = tuple(tokenizer.apply_chat_template([{"role": "user", "content": exchange.question}]))
    if len(token_ids) + answer_len > request.max_model_len:
        return None
    return Prompt(
        id=exchange.id, token_ids=token_ids, max_tokens=answer_len, text=exchange.question, reference=exchange.answer
    )
