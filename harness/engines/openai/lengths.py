"""A substitute for the tokenizer of a server known only by its address: for lengths and hashes of prompts."""

from __future__ import annotations

BYTES_A_TOKEN = 4  # of English text, roughly; every table says that lengths are estimates


class ByteGroups:
    """Up to four bytes of UTF-8 form an id, so that ids identify a text uniquely. They are never sent to a server."""

    vocab_size = 1 << (8 * BYTES_A_TOKEN + 3)
    bos_id = None
    has_chat_template = False

    def encode(self, text: str) -> list[int]:
        data = text.encode()
        groups = (data[at : at + BYTES_A_TOKEN] for at in range(0, len(data), BYTES_A_TOKEN))
        return [int.from_bytes(b"\x01" + group, "big") for group in groups]  # the 1 keeps leading zeros

    encode_raw = encode

    def decode(self, ids: list[int]) -> str:
        """ValueError: the ids that a user gives, or a server reports, are those of a model."""
        raise ValueError("token ids cannot be read as text without the model's tokenizer: give --tokenizer")

    def render_chat(self, messages: list[dict[str, str]]) -> str:
        """The texts of all messages, and who wrote those before the last: the server applies its own chat template."""
        *before, last = messages
        return "".join(f"{message['role']}: {message['content']}\n" for message in before) + last["content"]

    def apply_chat_template(self, messages: list[dict[str, str]]) -> list[int]:
        return self.encode(self.render_chat(messages))
