"""The figures of one engine's process in benchmarks/decode_race.py. Standard library only."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from race_workers import SETTLE, TURN

MIN_DECODE_S = 2.0  # of a figure: a large model's clock follows the power limit, a small one decodes a batch in 40 ms
_SHORTEST_S = 20e-3  # of one batch; where a slow prefill leaves less, a figure must not take hundreds of batches


class DecodeTimer:
    """Times one cell of an engine: decode tokens per second, (tokens - B) / (time - time of one token each).

    `generate`: runs a batch of so many output tokens, seconds. Warms up first. A figure covers as many batches as it
    takes to decode for `MIN_DECODE_S`, 100 at most. `settle`, called when no engine loads any more, finds their number
    from the slower of two batches; all ranks of an engine take rank 0's (`agree`). No garbage is collected meanwhile:
    a full collection takes 0.1 s.
    """

    def __init__(
        self,
        generate: Callable[[int], float],
        batch: int,
        num_tokens: int,
        agree: Callable[[int], int] = lambda number: number,
    ):
        self._generate, self._batch, self._num_tokens, self._agree = generate, batch, num_tokens, agree
        self.num_batches = 0  # until it is settled
        for tokens in (16, 1, num_tokens):
            generate(tokens)

    def _decode_s(self) -> float:
        prefill_s = self._generate(1)
        return self._generate(self._num_tokens) - prefill_s

    def settle(self) -> None:
        with _no_garbage():
            decode_s = max(self._decode_s(), self._decode_s(), _SHORTEST_S)
        self.num_batches = self._agree(math.ceil(MIN_DECODE_S / decode_s))

    def tps(self) -> float:
        assert self.num_batches, "settle() comes first"
        num_tokens = self.num_batches * self._batch * (self._num_tokens - 1)
        with _no_garbage():
            return num_tokens / sum(self._decode_s() for _ in range(self.num_batches))


@contextlib.contextmanager
def _no_garbage() -> Iterator[None]:
    """As harness/engines/no_gc.py, which the processes of other engines cannot import."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def answer_turns(timers: Sequence[DecodeTimer | None], answers: IO[str] | None = None) -> None:
    """A worker's answers, on standard output unless told otherwise. None: a cell that it cannot run."""
    for line in sys.stdin:
        figures: list[float | None] = []
        if line.strip() == SETTLE:
            for timer in timers:
                if timer is not None:
                    timer.settle()
        elif line.strip() == TURN:
            figures = [None if timer is None else timer.tps() for timer in timers]
        else:
            raise SystemExit(f"{line.strip()!r} is not allowed; allowed: {SETTLE}, {TURN}")
        print(json.dumps(dict(figures=figures)), file=answers, flush=True)
