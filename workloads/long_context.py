"""Long contexts: held-out ShareGPT questions, each behind other conversations, up to a number of tokens.

A model must read all of it and answer the last question. The texts are by people and models, but their combination is
artificial, so the workload is marked synthetic.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from specbench.workloads import held_out
from specbench.workloads.assets.resolve import resolve
from specbench.workloads.base import Prompt, Tokenizer, Workload, WorkloadRequest, messages_beyond_text, require_enough
from specbench.workloads.sharegpt_file import Exchange

OUTPUT_LEN = 128
FIRST_LEN = 512  # tokens of the shortest prompts; each further length is twice the one before


def load(request: WorkloadRequest, tokenizer: Tokenizer) -> Workload:
    """Prompts of 512, 1,024, 2,048, ... tokens in turn, as long as the model takes them, or a little less.

    128 output tokens unless ``output_len`` says otherwise.
    """
    asset = resolve(request.path or "sharegpt")
    order = held_out.exchanges(asset)
    random.Random(request.seed).shuffle(order)
    max_tokens = request.output_len or OUTPUT_LEN
    lengths = _lengths(request.max_model_len - max_tokens)
    prompts: list[Prompt] = []
    for number, last in enumerate(order):
        if len(prompts) == request.num_prompts:
            break
        length = lengths[len(prompts) % len(lengths)]
        messages = _joined([*order[number + 1 :], *order[:number]], last, length, tokenizer)
        if messages:
            prompts.append(
                Prompt(
                    id=f"{last.id}:{length}",
                    token_ids=tuple(tokenizer.apply_chat_template(messages)),
                    max_tokens=max_tokens,
                    text=last.question,
                    category=f"context {length}",
                    messages=messages_beyond_text(messages),
                )
            )
    rule = (
        f"ShareGPT, held-out conversations: a first question behind first questions and answers of others, chat "
        f"template applied; at most {', '.join(map(str, lengths))} prompt tokens in turn; up to {max_tokens} output "
        f"tokens; shuffled with seed {request.seed}"
    )
    require_enough(request.name, wanted=request.num_prompts, available=len(prompts), rule=rule)
    source = f"{asset.source} sha256:{asset.sha256}"
    return Workload(name=request.name, prompts=tuple(prompts), rule=rule, source=source, synthetic=True)


def _lengths(most: int) -> list[int]:
    """The lengths that fit; the maximum itself if none does."""
    found = [length for length in (FIRST_LEN << n for n in range(16)) if length <= most]
    return found or [max(most, 1)]


def _joined(others: Sequence[Exchange], last: Exchange, length: int, tokenizer: Tokenizer) -> list[dict[str, str]]:
    """As many of the others as fit, then the last question; empty if that does not fit."""
    before: list[dict[str, str]] = []
    asked = [{"role": "user", "content": last.question}]
    room = length - len(tokenizer.apply_chat_template(asked))
    if room < 0:
        return []
    for other in others:
        pair = [{"role": "user", "content": other.question}, {"role": "assistant", "content": other.answer}]
        size = len(tokenizer.encode(other.question)) + len(tokenizer.encode(other.answer))
        if size > room:
            if room < length // 8:
                break
            continue
        ids = tokenizer.apply_chat_template([*before, *pair, *asked])
        if len(ids) <= length:
            before, room = [*before, *pair], length - len(ids)
    return [*before, *asked]
