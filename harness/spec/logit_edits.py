"""Edits of the target's logits before a token is sampled. Names and meaning are vLLM's."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields

MAX_BIAS, MAX_PENALTY = 100.0, 2.0
MAX_WORDS, MAX_WORD_TOKENS = 32, 16  # per slot, on the device


@dataclass(frozen=True, kw_only=True, slots=True)
class LogitEdits:
    """In the order in which they apply; the defaults are off.

    allowed_token_ids: only these are sampled; empty: all. banned_token_ids: never sampled. bad_words: sequences of
    tokens that never occur in the output: the last token is banned after the others. logit_bias: pairs of a token id
    and what is added to its logit. min_tokens: no stop id is sampled before this many output tokens.
    repetition_penalty: divides positive and multiplies negative logits of tokens in the prompt or the output.
    frequency_penalty: subtracted from a logit for each time its token occurs in the output; presence_penalty: once if
    it occurs. min_p: drops tokens whose probability is below this fraction of the likeliest token's, at the request's
    temperature.
    """

    allowed_token_ids: tuple[int, ...] = ()
    banned_token_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        if self.min_tokens < 0:
            raise ValueError(f"min_tokens: {self.min_tokens} is not allowed; allowed: 0 or more (0 is off)")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p: {self.min_p} is not allowed; allowed: 0 to 1 (0 is off)")
        if not 0 < self.repetition_penalty < math.inf:
            raise ValueError(
                f"repetition_penalty: {self.repetition_penalty} is not allowed; allowed: above 0, finite (1 is off)"
            )
        for name in ("frequency_penalty", "presence_penalty"):
            value = getattr(self, name)
            if not -MAX_PENALTY <= value <= MAX_PENALTY:
                raise ValueError(f"{name}: {value} is not allowed; allowed: -2 to 2 (0 is off)")
        for token, bias in self.logit_bias:
            if not -MAX_BIAS <= bias <= MAX_BIAS:
                raise ValueError(f"logit_bias: {bias} of token {token} is not allowed; allowed: -100 to 100")
        biased = [token for token, _ in self.logit_bias]
        if twice := [token for token in biased if biased.count(token) > 1]:
            raise ValueError(f"logit_bias: token {twice[0]} is given twice")
        if len(self.bad_words) > MAX_WORDS:
            raise ValueError(f"bad_words: {len(self.bad_words)} are not allowed; allowed: 0 to {MAX_WORDS}")
        if wrong := [word for word in self.bad_words if not 1 <= len(word) <= MAX_WORD_TOKENS]:
            raise ValueError(
                f"bad_words: one of {len(wrong[0])} tokens is not allowed; allowed: 1 to {MAX_WORD_TOKENS} tokens"
            )
        if self.allowed_token_ids and not {*self.allowed_token_ids} - self._never:
            raise ValueError("allowed_token_ids: every one of them is banned; allow one that is not")
        self.check_ids(None)

    @property
    def _never(self) -> set[int]:
        return {*self.banned_token_ids, *(word[0] for word in self.bad_words if len(word) == 1)}

    @property
    def named(self) -> dict[str, object]:
        """The edits that are on."""
        values = {field.name: getattr(self, field.name) for field in fields(LogitEdits)}
        return {name: value for name, value in values.items() if value != getattr(NO_EDITS, name)}

    @property
    def spelled(self) -> dict[str, object]:
        """The same in JSON types, as OpenAI-compatible servers take them."""
        words = self.named
        if self.logit_bias:
            words["logit_bias"] = {str(token): bias for token, bias in self.logit_bias}
        if self.bad_words:
            words["bad_words"] = [list(word) for word in self.bad_words]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in words.items()}

    def describe(self) -> str:
        """`min_p=0.1, min_tokens=8`; empty if all are off."""
        return ", ".join(f"{name}={value}" for name, value in self.spelled.items())

    def check_ids(self, vocab_size: int | None) -> None:
        """ValueError for a token id that the model does not have."""
        biased = [token for token, _ in self.logit_bias]
        ids_by_option = {
            "allowed_token_ids": self.allowed_token_ids,
            "banned_token_ids": self.banned_token_ids,
            "bad_words": [token for word in self.bad_words for token in word],
            "logit_bias": biased,
        }
        for name, ids in ids_by_option.items():
            for token in ids:
                if token < 0 or (vocab_size is not None and token >= vocab_size):
                    most = "" if vocab_size is None else f"; the model has 0 to {vocab_size - 1}"
                    raise ValueError(f"{name}: token {token} is not allowed{most or '; allowed: 0 or more'}")
        if vocab_size is not None and len(self._never) == vocab_size:
            raise ValueError("banned_token_ids: all tokens of the model are banned; leave one")

    def require_only(self, supported: Collection[str], engine: str) -> None:
        """ValueError for an edit that is on and that `engine` does not support."""
        for name in self.named:
            if name not in supported:
                raise ValueError(f"{name}: is not allowed; {engine} has no {name} of this meaning")


NO_EDITS = LogitEdits()


def parse_bias(words: Sequence[str]) -> tuple[tuple[int, float], ...]:
    """Parses `ID:BIAS` words into pairs."""
    pairs = []
    for word in words:
        token, colon, bias = word.partition(":")
        try:
            pairs.append((int(token), float(bias if colon else "nan")))
        except ValueError as error:
            raise ValueError(f"logit_bias: {word!r} is not allowed; write ID:BIAS, as in 42:-1.5") from error
        if math.isnan(pairs[-1][1]):
            raise ValueError(f"logit_bias: {word!r} is not allowed; write ID:BIAS, as in 42:-1.5")
    return tuple(pairs)


def parse_words(words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Parses `ID,ID,..` words into tuples."""
    sequences = []
    for word in words:
        try:
            sequences.append(tuple(int(token) for token in word.split(",")))
        except ValueError as error:
            raise ValueError(f"bad_words: {word!r} is not allowed; write ID,ID,.., as in 42,7") from error
    return tuple(sequences)
