"""The content of a result file of another benchmark, in one form for all tools. Times are in seconds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Annotated, Any, TypeVar

import msgspec

from specbench.harness.engines.openai.reports import MAX_COUNT, SpecDecoding
from specbench.harness.text import is_number
from specbench.workloads.json_values import Json, JsonObject

from .meta import Meta

Struct = TypeVar("Struct")
Seconds = Annotated[float, msgspec.Meta(ge=0, le=9e9)]  # fits in an int64 as ns
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
_MAX_SHOWN = 80  # characters of a value
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


def converted(raw: Json, kind: type[Struct], where: str, advice: str = "") -> Struct:
    """Converts the fields of `kind` and ignores others. ValueError naming the file, the field, its value and what is
    allowed; `advice` is for a file that lacks a field."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {_in_our_words(str(error), raw, advice)}") from error


def _in_our_words(message: str, raw: Json, advice: str) -> str:
    """msgspec's message names the field's path but not its value: "Expected `int`, got `str` - at `$.ttfts[1]`"."""
    what, _, at = message.partition(" - at `$")
    path = at.strip(".`")
    if (missing := what.removeprefix("Object missing required field ")) != what:
        return "; ".join(filter(None, (f"{path}.{missing.strip('`')}".lstrip(".") + " is missing", advice)))
    value: Any = raw
    # An entry of a table has no path of its own: the table is shown.
    for name, number in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path.partition("[...]")[0]):
        value = value[int(number)] if number else value[name]
    text = json.dumps(value)
    shown = (f"{path}: " if path else "") + (text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}...")
    if (allowed := what.removeprefix("Expected ")) == what:  # out of range, or a rule of the struct itself
        return f"{shown}: {what}"
    return f"{shown} is not allowed; allowed: {allowed.partition(', got')[0].replace('`', '')}"


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
