"""What both workers of benchmarks/arrivals_race.py share: the requests, the loop that serves them, what is measured.

An engine is driven through `Serving`: requests are submitted when they are due, and a step says which requests got how
many tokens. A load is `c64` (closed: 64 requests in service, the next is submitted when one ends) or `r40` (open: 40
requests a second on average, at the times that the file of requests holds, however many are waiting).

Times are the host's, read once when a step has returned. A request starts when it is due (open) or submitted (closed).
A delivery is what one step brought one request: with speculation, several tokens.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

MAX_MODEL_LEN = 2048
MAX_NUM_SEQS = 256  # of both engines
PAGE = 16  # tokens, of both engines
_SPARE = 32  # tokens that a request may have in the cache beyond its last: drafts, and rounds already launched


class Serving(Protocol):
    def submit(self, index: int, prompt_ids: list[int], max_tokens: int) -> None: ...

    def step(self) -> list[tuple[int, int, bool]]:
        """(request, its new tokens, whether it has ended) of all that got tokens."""
        ...

    def settle(self) -> None:
        """Reads what is still in flight once all requests have ended."""
        ...


@dataclass(frozen=True, slots=True)
class Load:
    is_closed: bool
    amount: float  # requests in service, or requests a second

    @classmethod
    def parse(cls, word: str) -> Load:
        """ValueError for anything but c or r and a positive number."""
        kind, amount = word[:1], float(word[1:] or 0)
        if kind not in ("c", "r") or not amount > 0 or (kind == "c" and amount % 1):
            raise ValueError(f"load: {word!r} is not allowed; allowed: c64 (64 in service) or r40 (40 a second)")
        return cls(kind == "c", amount)

    def __str__(self) -> str:
        return f"{'c' if self.is_closed else 'r'}{self.amount:g}"


@dataclass(frozen=True, slots=True)
class Cell:
    """A load with K drafts; 0 is no speculation."""

    k: int
    load: Load

    @classmethod
    def parse(cls, word: str) -> Cell:
        k, _, load = word.partition("/")
        return cls(int(k), Load.parse(load))

    def __str__(self) -> str:
        return f"{self.k}/{self.load}"


@dataclass(frozen=True, slots=True)
class Requests:
    """The same for both engines, which read them from one file."""

    prompts: list[list[int]]
    max_tokens: list[int]
    arrivals_s: dict[str, list[float]]  # by open load

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Requests:
        return cls(**json.loads(file.read_text()))

    def first(self, num: int) -> Requests:
        return Requests(self.prompts[:num], self.max_tokens[:num], {})

    @property
    def num_pages(self) -> int:
        """Pages of each engine's cache, with the one that both keep for themselves: enough for all requests in service
        at once, at their full lengths, when they start in order and get a token a step. As most have only a part of
        their output at a time, a tenth is to spare, and nothing is preempted."""
        lengths = [-(-(len(p) + m + _SPARE) // PAGE) for p, m in zip(self.prompts, self.max_tokens, strict=True)]
        ends: list[tuple[int, int]] = []  # (step, pages) of those in service
        most = taken = step = 0
        for length, max_tokens in zip(lengths, self.max_tokens, strict=True):
            if len(ends) == MAX_NUM_SEQS:
                step, pages = heapq.heappop(ends)
                taken -= pages
            heapq.heappush(ends, (step + max_tokens, length))
            taken += length
            most = max(most, taken)
        return 1 + most


@dataclass(slots=True)
class Served:
    """One request's start, and its deliveries as (time, tokens); seconds since the load began."""

    start_s: float
    deliveries: list[tuple[float, int]] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return sum(num for _, num in self.deliveries)


def serve(
    engine: Serving,
    requests: Requests,
    load: Load,
    now: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Served]:
    """Serves all requests in order. RuntimeError if one does not get exactly its number of tokens."""
    served: list[Served] = []
    num, in_service = len(requests.prompts), 0
    arrivals_s = [0.0] * num if load.is_closed else requests.arrivals_s[str(load)]
    most = load.amount if load.is_closed else num
    begin = now()
    while in_service or len(served) < num:
        time_s = now() - begin
        while len(served) < num and in_service < most and arrivals_s[len(served)] <= time_s:
            index = len(served)
            served.append(Served(now() - begin if load.is_closed else arrivals_s[index]))
            engine.submit(index, requests.prompts[index], requests.max_tokens[index])
            in_service += 1
        if not in_service:
            sleep(arrivals_s[len(served)] - time_s)
            continue
        delivered = engine.step()
        time_s = now() - begin
        for index, num_new, has_ended in delivered:
            served[index].deliveries.append((time_s, num_new))
            if has_ended:
                in_service -= 1
    engine.settle()
    for index, (one, wanted) in enumerate(zip(served, requests.max_tokens, strict=True)):
        if one.num_tokens != wanted:
            raise RuntimeError(f"{load}: request {index} got {one.num_tokens} tokens; {wanted} were asked for")
    return served


def measures(served: list[Served]) -> dict[str, float]:
    """Of one load. ITL: the gap between a request's neighbouring deliveries, over all requests. TPOT: the mean over
    requests of (last - first delivery) / (tokens - 1)."""
    seconds = max(one.deliveries[-1][0] for one in served)
    ttft_ms = [(one.deliveries[0][0] - one.start_s) * 1e3 for one in served]
    gaps_ms = np.concatenate([np.diff([time_s for time_s, _ in one.deliveries]) for one in served]) * 1e3
    several = [one for one in served if one.num_tokens > 1]
    tpot_ms = [(one.deliveries[-1][0] - one.deliveries[0][0]) / (one.num_tokens - 1) * 1e3 for one in several]
    return dict(
        requests_per_s=len(served) / seconds,
        output_tps=sum(one.num_tokens for one in served) / seconds,
        ttft_ms_median=float(np.median(ttft_ms)),
        ttft_ms_p99=float(np.percentile(ttft_ms, 99)),
        itl_ms_p99=float(np.percentile(gaps_ms, 99)) if gaps_ms.size else 0.0,
        tpot_ms_mean=float(np.mean(tpot_ms)) if tpot_ms else 0.0,
    )


def warm_up(engine: Serving, requests: Requests) -> None:
    """Every batch size that a load can meet, so that nothing is compiled in a turn."""
    for most in (MAX_NUM_SEQS, 64, 8, 1):
        serve(engine, requests.first(2 * most), Load(True, most))


def worker_arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape")
    parser.add_argument("acceptance", type=float, help="forced acceptance length of cells with drafts")
    parser.add_argument("requests", type=Path, help="file that the race has written")
    parser.add_argument("cells", nargs="+", type=Cell.parse, metavar="K/LOAD")
    return parser


def answer(ready: dict, engines: Mapping[int, Serving], requests: Requests, lines: Iterable[str]) -> None:
    """A worker's part of the protocol: one JSON line when its engines, by K, are ready; then one with the measures of
    the cell that each line names."""
    gc.collect()
    gc.freeze()
    print(json.dumps(dict(ready=ready)), flush=True)
    for line in lines:
        cell = Cell.parse(line.strip())
        figures = measures(serve(engines[cell.k], requests, cell.load))
        print(json.dumps(dict(figures=figures)), flush=True)
