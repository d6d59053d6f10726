"""Made-up responses and a character tokenizer for a toy target of 128 tokens."""

from __future__ import annotations

import random
from pathlib import Path

from specbench.harness.training.dialogue import ResponseSequence
from specbench.harness.training.shards import Sequences, read_sequences, write_shard

EOS = 3


class CharTokenizer:
    """One id a character below 128; the chat template marks turns with ids 1 (person), 2 (model) and 3 (end)."""

    def apply_chat_template(self, messages: list[dict[str, str]]) -> list[int]:
        ids: list[int] = []
        for m in messages:
            ids += [1 if m["role"] == "user" else 2, *(ord(c) % 128 for c in m["content"])]
            ids += [EOS] if m["role"] == "user" or not ids[-1:] == [EOS] else []
        return [*ids, 2]

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(i) for i in ids)


def sequence(name: str, rng: random.Random) -> ResponseSequence:
    num_prompt, num_response = rng.randint(3, 9), rng.randint(4, 40)
    pattern = [rng.randrange(10, 60) for _ in range(5)]
    ids = [rng.randrange(128) for _ in range(num_prompt)] + [pattern[i % 5] for i in range(num_response)]
    return ResponseSequence(
        id=name,
        temperature=0.0,
        token_ids=ids,
        span_starts=[num_prompt],
        span_ends=[len(ids)],
        looped=False,
        num_cut_tokens=0,
    )


def made_up(folder: Path, count: int = 60) -> Sequences:
    rng = random.Random(1)
    folder.mkdir(parents=True, exist_ok=True)
    rows = [sequence(f"made/{i:03d}#0.0", rng) for i in range(count)]
    for first in range(0, count, 25):
        write_shard(folder, rows[first : first + 25])
    return read_sequences(folder)
