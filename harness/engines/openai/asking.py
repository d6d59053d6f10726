"""The body of a request, and the reason for a refused one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from specbench.harness.engines.load import PromptRequest

from .dialects import Dialect

APIS = {"completions": "/completions", "chat": "/chat/completions"}
PROMPTS = ("ids", "text")


@dataclass(frozen=True, kw_only=True, slots=True)
class Asking:
    """The form of an arm's requests. `api`: one of APIS; `as_ids`: prompts are sent as token ids."""

    dialect: Dialect
    model: str
    api: str = "completions"
    as_ids: bool = False
    eos_ids: tuple[int, ...] = ()

    @property
    def path(self) -> str:
        return APIS[self.api]

    def check(self, request: PromptRequest) -> None:
        """ValueError for a prompt that cannot be sent, or a field that the server does not support."""
        if not request.text and not (self.as_ids and request.prompt_ids):
            raise ValueError(
                f"dataset_name: prompt {request.key} has token ids and no text; {self.dialect.name} gets texts here: "
                "give --tokenizer, or prompts of words"
            )
        if request.messages and self.api != "chat" and not self.as_ids:
            raise ValueError(
                f"dataset_name: prompt {request.key} is a conversation, and {self.dialect.name} gets texts here, which "
                "would hold its last message only: give engine.api=chat, or token ids (--tokenizer, engine.prompt=ids)"
            )
        self.dialect.fields(request, self.eos_ids, ignore_eos=False)

    def fields(self, request: PromptRequest, *, ignore_eos: bool = False, salt: str = "") -> dict[str, object]:
        """Fields of a request for a streamed answer; `salt` keeps its prefix distinct from all others."""
        prompt: Mapping[str, object]
        if self.api == "chat":
            prompt = {"messages": request.messages or [{"role": "user", "content": request.text}]}
        else:
            prompt = {"prompt": list(request.prompt_ids) if self.as_ids and request.prompt_ids else request.text}
        fields = {
            "model": self.model,
            **prompt,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.dialect.fields(request, self.eos_ids, ignore_eos=ignore_eos),
        }
        if salt and self.dialect.salt:
            fields[self.dialect.salt] = salt
        return fields


def encode(fields: Mapping[str, object]) -> bytes:
    return msgspec.json.encode(fields)


def why_refused(fields: Mapping[str, object], message: str) -> str:
    """One line that names the field that the server's message is about, if it names one."""
    named = [key for key in fields if re.search(rf"(?<![A-Za-z0-9_]){key}(?![A-Za-z0-9_])", message)]
    plain = ("model", "prompt", "messages", "stream")  # words of any sentence
    field = next((key for key in sorted(named, key=lambda key: key in plain)), None)
    return f"it refuses the field {field} ({message})" if field else f"it refuses the request ({message})"
