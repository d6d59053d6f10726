"""Requests to SGLang, and what it reports at the end of one. Standard library only, since the child imports it by
path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict, get_args

if TYPE_CHECKING:
    from specbench.harness.engines.child.wire import Request

_Summed = Literal[
    "completion_tokens", "num_retractions", "spec_verify_ct", "spec_num_correct_drafts", "spec_num_proposed_drafts"
]
_SUMMED: tuple[_Summed, ...] = get_args(_Summed)


class MetaInfo(TypedDict, total=False):
    """The part of an answer's `meta_info` that is used. Log-probabilities are (log-probability, token, text)."""

    prompt_tokens: int
    cached_tokens: int
    finish_reason: object
    completion_tokens: int
    num_retractions: int
    spec_verify_ct: int
    spec_num_correct_drafts: int
    spec_num_proposed_drafts: int
    spec_correct_drafts_histogram: Sequence[int]
    input_token_logprobs: Sequence[tuple[float, int, str | None]]
    input_top_logprobs: Sequence[Sequence[tuple[float, int, str | None]]]


class Answer(TypedDict, total=False):
    """`error`: set by us if SGLang refused the request; the rest is always present."""

    output_ids: Sequence[int]
    meta_info: MetaInfo
    error: str


class Edits(TypedDict, total=False):
    """The active edits of the logits."""

    min_p: float
    frequency_penalty: float
    presence_penalty: float
    logit_bias: Mapping[str, float]
    min_new_tokens: int


class Sampling(Edits):
    """Sampling parameters by SGLang's names."""

    temperature: float
    top_p: float
    top_k: int
    max_new_tokens: int
    ignore_eos: bool
    stop_token_ids: list[int]


def sampling(request: Request) -> Sampling:
    """Everything that affects sampling and the end of an answer. SGLang accepts seeds only in its deterministic
    mode."""
    if request["ignore_eos"] and request["stop_token_ids"]:
        raise ValueError("stop_token_ids: SGLang ignores them when it ignores the end of text")
    parameters: Sampling = {
        "temperature": request["temperature"],
        "top_p": request["top_p"],
        "top_k": request["top_k"] or -1,
        "max_new_tokens": request["max_tokens"],
        "ignore_eos": request["ignore_eos"],
        "stop_token_ids": request["stop_token_ids"],
    }
    for name, value in request["edits"].items():
        parameters["min_new_tokens" if name == "min_tokens" else name] = value  # type: ignore[literal-required]
    return parameters


def reason_of(reason: object) -> str:
    kind = reason.get("type") if isinstance(reason, dict) else None
    return kind if kind in ("stop", "length", "abort") else "error"


def count(counters: dict[str, float], meta: MetaInfo) -> None:
    for name in _SUMMED:
        if name in meta:
            counters[name] = counters.get(name, 0.0) + meta[name]
    for accepted, number in enumerate(meta.get("spec_correct_drafts_histogram", ())):
        bucket = f"spec_correct_drafts_histogram/{accepted}"
        counters[bucket] = counters.get(bucket, 0.0) + number


def with_length(counters: dict[str, float]) -> dict[str, float]:
    """With SGLang's own figure, of this block: kept tokens, the prompt's included, a verification."""
    rounds = counters.get("spec_verify_ct")
    return {**counters, "spec_accept_length": counters["completion_tokens"] / rounds} if rounds else counters
