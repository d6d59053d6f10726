"""A server's answer, parsed from the bytes of a finished request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from .events import DONE, read_events
from .reports import Counts, Report, SpecDecoding, SpecTokensDetails, Timings
from .stream import Exchange

MAX_ERROR_CHARS = 300
# Most pieces of text: reasoning and answer of one step can come separately, and at the end parsers send what they held
# back.
_TEXTS_A_TOKEN, _TEXTS_AT_END = 2, 2


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(Counts):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    meta_info: SpecTokensDetails | None = None


class _PromptDetails(Counts):
    cached_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.cached_tokens == -1:  # what some servers say where they do not know
            self.cached_tokens = None
        super().__post_init__()


class _Usage(Counts):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Metrics(msgspec.Struct):
    speculative_decoding: SpecDecoding | None = None


class _Sglext(msgspec.Struct):
    spec_tokens_details: SpecTokensDetails | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    metrics: _Metrics | None = None
    sglext: _Sglext | None = None
    timings: Timings | None = None
    error: Any = None
    kind: str = msgspec.field(default="", name="object")


_decode = msgspec.json.Decoder(_Chunk).decode
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_FINISH = {"length": "length", "abort": "abort"}  # other reasons count as stop


@dataclass(slots=True)
class Piece:
    """Output that arrived at one time. `num_tokens` is None if the server does not report it."""

    t_ns: int
    num_tokens: int | None
    has_text: bool


@dataclass(slots=True)
class Answer:
    """One request as reported by its server. Unreported counts are None; `error` is empty for a complete answer."""

    t_submit_ns: int
    pieces: list[Piece] = field(default_factory=list)
    text: str = ""
    token_ids: list[int] | None = None
    finish_reason: str | None = None
    num_prompt_tokens: int | None = None
    num_output_tokens: int | None = None
    num_cached_tokens: int | None = None
    speculation: Report | None = None
    error: str = ""
    is_refused: bool = False

    @property
    def tokens_per_piece(self) -> list[int] | None:
        """None unless the number of every piece is known and they add up to the whole answer."""
        counts = [piece.num_tokens for piece in self.pieces if piece.num_tokens is not None]
        whole = len(counts) == len(self.pieces) and sum(counts) == self.num_output_tokens
        return counts if whole else None

    def refuse(self, error: str) -> None:
        """Its counts contradict each other, so no figure is made of them; text and times are what the client saw."""
        self.error, self.is_refused = error, True
        self.token_ids = self.speculation = None
        for piece in self.pieces:
            piece.num_tokens = None
        self.num_prompt_tokens = self.num_output_tokens = self.num_cached_tokens = None


def read_answer(exchange: Exchange) -> Answer:
    """Parses everything in the exchange; anything wrong with it is in the answer's `error`."""
    answer = Answer(exchange.t_submit_ns)
    if exchange.status not in (0, 200):
        answer.error = f"the server answered {exchange.status}: {error_text(exchange.body)}"
        return answer
    reader = _Reader(answer)
    try:
        for t_ns, data in read_events(exchange.pieces):
            reader.is_stream = True
            if data.strip() == DONE:
                reader.is_done = True
                break
            reader.take(t_ns, data)
    except _MALFORMED as error:  # malformed JSON, text that is not UTF-8, or a field of another type
        answer.error = exchange.fault or f"malformed chunk: {error}"
    else:
        if exchange.pieces and not reader.is_stream and not exchange.fault:
            answer.error = f"the server answered without a stream: {error_text(exchange.body)}"
    reader.end()
    answer.error = answer.error or exchange.fault or reader.what_is_missing()
    if wrong := reader.contradiction():
        answer.refuse(answer.error or wrong)
    return answer


class _Reader:
    def __init__(self, answer: Answer):
        self.answer, self.is_stream, self.is_done, self.is_chat = answer, False, False, False
        self._texts: list[str] = []
        self._ids: list[int] = []
        self._num_predicted = 0

    def take(self, t_ns: int, data: bytes) -> None:
        answer, chunk = self.answer, _decode(data)
        if chunk.error is not None or chunk.kind == "error":
            answer.error = answer.error or f"the server answered with an error: {error_text(data)}"
        for choice in (chunk.choices or ())[:1]:
            self._take_choice(t_ns, choice, chunk.timings)
        if chunk.usage is not None:
            self._take_usage(chunk.usage)
        reports = (
            chunk.metrics.speculative_decoding if chunk.metrics else None,
            chunk.sglext.spec_tokens_details if chunk.sglext else None,
            chunk.timings if chunk.timings and chunk.timings.draft_n is not None else None,
        )
        answer.speculation = next((one for one in reports if one is not None), answer.speculation)
        if chunk.timings is not None and chunk.timings.cache_n is not None:
            answer.num_cached_tokens = chunk.timings.cache_n

    def _take_usage(self, usage: _Usage) -> None:
        """A count that it does not have leaves what is known: it is not 0."""
        answer, details = self.answer, usage.prompt_tokens_details or _PromptDetails()
        if usage.prompt_tokens is not None:
            answer.num_prompt_tokens = usage.prompt_tokens
        if usage.completion_tokens is not None:
            answer.num_output_tokens = usage.completion_tokens
        if details.cached_tokens is not None:
            answer.num_cached_tokens = details.cached_tokens

    def _take_choice(self, t_ns: int, choice: _Choice, timings: Timings | None) -> None:
        delta = choice.delta
        self.is_chat |= delta is not None
        text = choice.text or (delta and (delta.content or delta.reasoning_content or delta.reasoning)) or ""
        num_tokens = None if choice.token_ids is None else len(choice.token_ids)
        if num_tokens is None and timings is not None and timings.predicted_n is not None:
            num_tokens, self._num_predicted = timings.predicted_n - self._num_predicted, timings.predicted_n
        # The end of an answer may be a token that has no text.
        if text or num_tokens or (choice.finish_reason is not None and num_tokens is None):
            self.answer.pieces.append(Piece(t_ns, num_tokens, bool(text)))
            self._texts.append(text)
            self._ids += choice.token_ids or ()
        if choice.finish_reason is not None:
            self.answer.finish_reason = _FINISH.get(choice.finish_reason, "stop")
        if choice.meta_info is not None and choice.meta_info.spec_verify_ct:
            self.answer.speculation = choice.meta_info

    def end(self) -> None:
        answer = self.answer
        answer.text = "".join(self._texts)
        answer.token_ids = self._ids or None
        num_known = sum(piece.num_tokens or 0 for piece in answer.pieces)
        if all(piece.num_tokens is not None or not piece.has_text for piece in answer.pieces):
            if answer.num_output_tokens is None and num_known:
                answer.num_output_tokens = num_known
            if answer.num_output_tokens == num_known:  # an end without a token of its own
                answer.pieces = [piece for piece in answer.pieces if piece.num_tokens]
        if answer.token_ids is not None and len(answer.token_ids) != answer.num_output_tokens:
            answer.token_ids = None  # some were held back

    def what_is_missing(self) -> str:
        if self.answer.finish_reason is None:
            return "the answer has no finish reason" if self.is_done else "the server cut the stream"
        return ""

    def contradiction(self) -> str:
        """What cannot be true together, or empty.

        A server may send fewer tokens than it counts: llama.cpp counts drafts that were accepted past the end, and
        vLLM's chat API counts tokens that its parsers hide. In the completions API of vLLM and SGLang the usage is the
        number of the ids that were sent."""
        pieces, num_tokens, report = self.answer.pieces, self.answer.num_output_tokens, self.answer.speculation
        counts = [piece.num_tokens for piece in pieces]
        if any(count is not None and count < 0 for count in counts):
            return "the server's running count of tokens went down"
        if num_tokens is not None:
            num_sent, num_texts = sum(count or 0 for count in counts), sum(piece.has_text for piece in pieces)
            has_all_ids = bool(self._ids) and None not in counts and not self.is_chat
            counted = f"output tokens: the server counted {num_tokens} and sent"
            if num_tokens and not pieces:  # without a first token, it would be the fastest of all
                return f"{counted} none"
            if num_sent > num_tokens or (has_all_ids and num_sent < num_tokens):
                return f"{counted} {num_sent}"
            if num_texts > (_TEXTS_A_TOKEN * num_tokens + _TEXTS_AT_END if num_tokens else 0):
                return f"{counted} {num_texts} texts; a proxy splits tokens, or the usage leaves some out"
        wrong = report.contradiction(num_tokens) if report is not None else ""
        return wrong and f"the server's report of its drafts contradicts itself: {wrong}"


def error_text(body: bytes) -> str:
    """The message in an error's body, on one line, whatever its form."""
    try:
        value = msgspec.json.decode(body.removeprefix(b"data:").strip())
    except _MALFORMED:
        value = body.decode(errors="replace")
    for key in ("error", "detail", "message"):
        if isinstance(value, Mapping) and key in value:
            value = value[key]
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return " ".join(text.split())[:MAX_ERROR_CHARS] or "no reason given"
