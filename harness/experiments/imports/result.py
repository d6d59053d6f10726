"""The content of a result file of another benchmark, in one form for all tools. Times are in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Annotated, TypeVar

import msgspec

from specbench.harness.engines.openai.answers import SpecDecoding
from specbench.harness.text import is_number
from specbench.workloads.json_values import Json, JsonObject

from .meta import Meta

Struct = TypeVar("Struct")
Seconds = Annotated[float, msgspec.Meta(ge=0, le=9e9)]  # fits in an int64 as ns
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Own = Mapping[str, str | int | float | bool | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Output that the client received at one time, `t_s` after its request. `num_tokens`: None if unknown."""

    t_s: float
    num_tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request. `prompt`: identifies the prompt; empty if the file does not. `start_s`: when it was sent, by the
    client's clock; None if the file does not contain it. `ttft_s`, `e2e_s`: from then to the first and the last token;
    0 if there was none. `queue_s`: how long it had waited in the client. `finish`: stop, abort or error."""

    prompt: str = ""
    num_prompt_tokens: int
    num_output_tokens: int
    start_s: float | None = None
    ttft_s: float = 0.0
    e2e_s: float = 0.0
    chunks: Sequence[Chunk] = ()
    queue_s: float | None = None
    text: str | None = None
    finish: str = "stop"
    error: str = ""
    speculation: SpecDecoding | None = None

    @property
    def is_served(self) -> bool:
        return self.finish == "stop"


@dataclass(frozen=True, kw_only=True, slots=True)
class Drafts:
    """Sums over a whole run: verifications with drafts, their drafts, and accepted drafts. `by_position`: drafts
    accepted at a position / all verifications."""

    num_rounds: int
    num_tokens: int
    num_accepted: int
    by_position: Sequence[float] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One run of a tool. `requests`: empty if the file contains totals only. `duration_s`: the tool's own figure, for
    files without start times of requests. `own`: the tool's totals, unchanged. `notes`: for the reader."""

    tool: str
    label: str = ""
    requests: Sequence[Request]
    meta: Meta
    duration_s: float = 0.0
    drafts: Drafts | None = None
    own: Own = field(default_factory=dict)
    notes: Sequence[str] = ()
    started_utc: str = ""


def check_requests(requests: Sequence[Request], where: str) -> None:
    """ValueError for a request whose tokens came before it was sent, or the last one before the first; and for one with
    more accepted than drafted tokens."""
    for one in requests:
        if one.speculation is not None and _has_too_many(one.speculation):
            raise ValueError(
                f"{where}: a request ({one.num_prompt_tokens} prompt tokens, {one.num_output_tokens} output tokens) "
                "accepted more draft tokens than it had; allowed: a file as the benchmark wrote it"
            )
        first_ns, last_ns = (round(end_s * 1e9) for end_s in (one.ttft_s, one.e2e_s))
        if one.num_output_tokens and not 0 <= first_ns <= last_ns:
            raise ValueError(
                f"{where}: a request ({one.num_prompt_tokens} prompt tokens, {one.num_output_tokens} output tokens) "
                f"has its first token {one.ttft_s:.9g} s and its last {one.e2e_s:.9g} s after it was sent; allowed: in "
                "this order, as the benchmark wrote them"
            )


def _has_too_many(found: SpecDecoding) -> bool:
    steps = zip(found.per_step_accepted or (), found.per_step_drafted or (), strict=False)
    return found.num_accepted_draft_tokens > found.num_draft_tokens or any(kept > drafted for kept, drafted in steps)


def converted(raw: Json, kind: type[Struct], where: str, advice: str) -> Struct:
    """Converts the fields of `kind` and ignores others. ValueError naming the file and the field."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {error}; {advice}") from error


def totals(raw: JsonObject) -> Own:
    """The values that are neither lists nor tables."""
    return {name: value for name, value in raw.items() if value is None or isinstance(value, (str, int, float))}


def named(own: Own, names: Sequence[str]) -> str:
    """`output_throughput 425.6, mean_tpot_ms 5`: those that are numbers."""
    return ", ".join(f"{name} {value:g}" for name in names if is_number(value := own.get(name)))


def chunks(ttft_s: float, gaps_s: Sequence[float]) -> list[Chunk]:
    """The chunks of a stream, from the gaps between them."""
    return [Chunk(t_s=t_s) for t_s in accumulate(gaps_s, initial=ttft_s)]


def unsmeared(ttft_s: float, gaps_s: Sequence[float], num_tokens: int) -> list[Chunk]:
    """Undoes the smearing of gaps that the tool divided by the tokens of their chunk and wrote once per token:
    neighbours that are equal to the last bit belong to one chunk."""
    found = [Chunk(t_s=ttft_s, num_tokens=num_tokens - len(gaps_s))]
    for _, same in groupby(gaps_s):
        of_chunk = list(same)
        found.append(Chunk(t_s=found[-1].t_s + sum(of_chunk), num_tokens=len(of_chunk)))
    return found
