"""What a result file of another benchmark holds, in one form for all tools. Times are in seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import TypeVar

import msgspec

from specbench.harness.engines.openai.answers import SpecDecoding
from specbench.harness.text import is_number
from specbench.workloads.json_values import Json, JsonObject

from .meta import Meta

_Struct = TypeVar("_Struct")
Own = Mapping[str, str | int | float | bool | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Output that the client saw at one moment, `t_s` after its request. `num_tokens`: None where it is not told."""

    t_s: float
    num_tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request. `prompt`: what the file tells it by, empty where it does not. `start_s`: when it was sent, by the
    client's clock; None where the file does not say. `ttft_s`, `e2e_s`: from then to the first and the last token, 0
    where there was none. `queue_s`: how long it had waited in the client. `finish`: stop, abort or error."""

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
    """Sums over a whole run: verifications with drafts, their drafts, those accepted. `by_position`: accepted there /
    all verifications."""

    num_rounds: int
    num_tokens: int
    num_accepted: int
    by_position: Sequence[float] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One run of a tool. `requests`: none where the file holds totals only. `duration_s`: what the tool took it to be,
    for files that do not say when requests began. `own`: the tool's totals as they are. `notes`: what a reader must
    know."""

    tool: str
    label: str = ""
    requests: Sequence[Request]
    told: Meta
    duration_s: float = 0.0
    drafts: Drafts | None = None
    own: Own = field(default_factory=dict)
    notes: Sequence[str] = ()
    started_utc: str = ""


def converted(raw: Json, kind: type[_Struct], where: str, advice: str) -> _Struct:
    """The fields of `kind` alone. ValueError naming the file and the field."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {error}; {advice}") from error


def totals(raw: JsonObject) -> Own:
    """What is neither a list nor a table."""
    return {name: value for name, value in raw.items() if value is None or isinstance(value, (str, int, float))}


def named(own: Own, names: Sequence[str]) -> str:
    """`output_throughput 425.6, mean_tpot_ms 5`: of those that are numbers."""
    return ", ".join(f"{name} {value:g}" for name in names if is_number(value := own.get(name)))


def chunks(ttft_s: float, gaps_s: Sequence[float]) -> list[Chunk]:
    """Of gaps between the chunks of a stream."""
    return [Chunk(t_s=t_s) for t_s in accumulate(gaps_s, initial=ttft_s)]


def unsmeared(ttft_s: float, gaps_s: Sequence[float], num_tokens: int) -> list[Chunk]:
    """Of gaps that the tool divided by the tokens of their chunk and wrote once a token: neighbours that are equal to
    the last bit are of one chunk."""
    found = [Chunk(t_s=ttft_s, num_tokens=num_tokens - len(gaps_s))]
    for _, same in groupby(gaps_s):
        of_chunk = list(same)
        found.append(Chunk(t_s=found[-1].t_s + sum(of_chunk), num_tokens=len(of_chunk)))
    return found


def check_lengths(where: str, lists: Mapping[str, Sequence[object] | None]) -> None:
    """ValueError where lists with a value a request have different lengths, or none."""
    lengths = {name: len(values) for name, values in lists.items() if values is not None}
    if len(set(lengths.values())) != 1 or not next(iter(lengths.values())):
        raise ValueError(f"{where}: requests do not match: {lengths}")


def places(where: str, num: int) -> Iterator[str]:
    """Names of the results of one file."""
    return (where if num == 1 else f"{where}, result {n + 1}" for n in range(num))
