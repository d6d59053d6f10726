"""A tokenizer of one id a character, and small data files: enough to test every workload without a network."""

from __future__ import annotations

import json
from pathlib import Path

BOS, HEADER = 1, 2


class CharTokenizer:
    """``encode`` gives 10 + code point % 200; the chat template puts BOS before each message and HEADER at the end."""

    vocab_size = 210

    def encode(self, text: str) -> list[int]:
        return [10 + ord(char) % 200 for char in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(index - 10) for index in ids)

    def apply_chat_template(self, messages: list[dict[str, str]]) -> list[int]:
        body = [index for message in messages for index in (BOS, *self.encode(message["content"]))]
        return [*body, HEADER]


def write_jsonl(path: Path, records: list[dict]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def conversation(index: int, question: str, answer: str, first: str = "human", second: str = "gpt") -> dict:
    turns = [{"from": first, "value": question}, {"from": second, "value": answer}]
    return {"id": f"c{index}", "conversations": turns}
