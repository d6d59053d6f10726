"""One conversation with the target, turn by turn: the next prompt, and the token sequences that result.

Training sees the same tokens as inference: prompts are rendered by the chat template, and responses are the target's
own ids. A later turn continues the sequence if the rendered conversation begins with exactly these ids; otherwise the
sequence ends and a new one begins with the rendered prompt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from specbench.workloads.base import Tokenizer

from .config import GenerateConfig
from .conversations import Conversation
from .loops import loop_end

_MAX_CHARACTERS = 12  # per token of the limit: longer texts (pasted books) are dropped without tokenising them


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseSequence:
    """Token ids with the half-open spans that the target generated. `looped`: the last response ends in a loop."""

    id: str
    temperature: float
    token_ids: list[int]
    span_starts: list[int]
    span_ends: list[int]
    looped: bool
    num_cut_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One of the samples drawn for a conversation."""

    conversation: Conversation
    index: int
    temperature: float
    seed: int

    @property
    def id(self) -> str:
        return f"{self.conversation.id}#{self.index}"


def unit(*parts: object) -> float:
    """A number in [0, 1) that depends only on its arguments."""
    digest = hashlib.sha256("|".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def samples(conversations: Sequence[Conversation], config: GenerateConfig) -> Iterator[Sample]:
    """The first sample of every conversation, then every second one: an interrupted run has seen all prompts.

    The first samples are greedy as often as `greedy_share` of all samples requires; the others are drawn at
    temperatures spread over the config's range.
    """
    for index in range(max((c.num_samples for c in conversations), default=0)):
        for conversation in conversations:
            if index < conversation.num_samples:
                yield _sample(conversation, index, config)


def _sample(conversation: Conversation, index: int, config: GenerateConfig) -> Sample:
    key = (config.seed, conversation.id, index)
    greedy_chance = config.greedy_share * conversation.num_samples
    greedy = index == 0 and unit("greedy", *key) < greedy_chance
    spread = config.temperature_high - config.temperature_low
    temperature = 0.0 if greedy else config.temperature_low + spread * unit("temperature", *key)
    return Sample(
        conversation=conversation, index=index, temperature=round(temperature, 4), seed=int(unit("noise", *key) * 2**62)
    )


@dataclass(slots=True)
class Dialogue:
    """The state of one sample while the target answers."""

    sample: Sample
    tokenizer: Tokenizer
    config: GenerateConfig
    messages: list[dict[str, str]] = field(default_factory=list)
    num_turns: int = 0
    finished: list[ResponseSequence] = field(default_factory=list)
    _ids: list[int] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _over: bool = False

    def next_prompt(self) -> list[int] | None:
        """Ids to answer now; None when the conversation is over (no more turns, too long, or looping)."""
        prompt = None if self._over else self._render_next()
        if prompt is None:
            self._over = True
            self._close()
            return None
        if self._ids and prompt[: len(self._ids)] != self._ids:
            self._close()
        self._ids = prompt
        self.num_turns += 1
        return prompt

    def _render_next(self) -> list[int] | None:
        """The conversation with its next human turn; None if there is none or it is too long."""
        turns, max_tokens = self.sample.conversation.turns, self.config.max_prompt_tokens
        if self.num_turns >= len(turns) or len(turns[self.num_turns]) > _MAX_CHARACTERS * max_tokens:
            return None
        self.messages.append({"role": "user", "content": turns[self.num_turns]})
        prompt = self.tokenizer.apply_chat_template(self.messages)
        return prompt if len(prompt) <= max_tokens else None

    def answer(self, ids: Sequence[int]) -> None:
        """Takes the target's response to the last prompt."""
        end = loop_end(ids)
        is_whole = end is None or unit("loop", self.sample.id, self.num_turns) < self.config.whole_loop_share
        kept = ids if is_whole else ids[:end]
        self._starts.append(len(self._ids))
        self._ids = [*self._ids, *kept]
        self._ends.append(len(self._ids))
        if end is not None:
            self._close(looped=True, num_cut=len(ids) - len(kept))
            self._over = True
        elif self.num_turns < len(self.sample.conversation.turns):
            self.messages.append({"role": "assistant", "content": self.tokenizer.decode(list(ids))})

    def _close(self, *, looped: bool = False, num_cut: int = 0) -> None:
        if self._starts:
            name = f"{self.sample.id}.{len(self.finished)}"
            self.finished.append(
                ResponseSequence(
                    id=name,
                    temperature=self.sample.temperature,
                    token_ids=self._ids[: self._ends[-1]],
                    span_starts=self._starts,
                    span_ends=self._ends,
                    looped=looped,
                    num_cut_tokens=num_cut,
                )
            )
        self._ids, self._starts, self._ends = [], [], []
