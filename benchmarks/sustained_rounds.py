"""Decode rounds as they run on and on, at the clock that the power limit leaves: time, clock and power.

    PYTHONPATH=.ns python3 benchmarks/sustained_rounds.py llama-3.1-8b,3.0,0/1x128,4/8x128 --output rounds.json

Engines are those of decode_race.py (K/BxPROMPT; random weights, acceptance forced to the length after the shape, the
round in one CUDA graph), with attention as chosen and in Triton alone, in turn. Printed: milliseconds of a round in the
first four after the prompts and a second of rest; the same, batch after batch, over at least `SECONDS` of rounds
(prompts and a batch's last rounds are not timed; keys grow meanwhile); and the clock of the multiprocessors and the
power in these rounds, sampled every 20 ms by nvidia-smi. Medians of `REPEATS` repeats, of the sustained rounds with
their range.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from decode_ours import make_engine
from peer_shapes import prompts_of, vocabulary
from race_workers import Cell
from round_kernels import TOKENS, fill, run

from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.target_cache import CachePool
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.loader import dummy_target
from specbench.harness.spec.plans import PLANS
from specbench.kernels.attention.launch import choose_launch
from specbench.kernels.attention.triton_attention import TritonAttention

REPEATS, SECONDS, REST_S, FIRST = 3, 1.0, 1.0, 4
BACKENDS: dict[str, Callable[[], TritonAttention]] = {
    "chosen": TritonAttention,
    "triton": partial(TritonAttention, choose_launch),
}
_QUERY = "clocks.sm,power.draw.instant"


@dataclass(slots=True)
class Sampler:
    """(seconds, MHz, watts) of the machine's first GPU, for as long as the process lives."""

    samples: list[tuple[float, float, float]] = field(default_factory=list)

    def start(self) -> None:
        command = ["nvidia-smi", "-i", "0", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits", "-lms", "20"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, args=(process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            clock, power = map(float, line.split(","))
            self.samples.append((time.perf_counter(), clock, power))

    def between(self, spans: list[tuple[float, float]]) -> tuple[float, float]:
        """Mean clock and power. StatisticsError if nothing was sampled there."""
        found = [each[1:] for each in self.samples if any(start <= each[0] <= end for start, end in spans)]
        clocks, watts = zip(*found, strict=True) if found else ((), ())
        return statistics.mean(clocks), statistics.mean(watts)


@contextmanager
def steady(engine: Engine, prompts: list[tuple[int, ...]]) -> Iterator[int]:
    """The number of rounds left in which all requests decode; afterwards they are gone."""
    requests = fill(engine, prompts)
    # Each round emits at most all drafts and one; those in flight count too.
    most = max(len(request.output_ids) for request in requests)
    yield (TOKENS - most) // engine.state.lookahead.emitted - engine.config.status_lag - 1
    while engine.has_work:
        engine.step()
    engine.log.take()


def measured(engine: Engine, prompts: list[tuple[int, ...]], sampler: Sampler) -> dict[str, float]:
    with steady(engine, prompts):
        torch.cuda.synchronize()
        time.sleep(REST_S)
        first_ms = run(engine, FIRST)
    spans: list[tuple[float, float]] = []
    rounds = 0
    while sum(end - start for start, end in spans) < SECONDS:
        with steady(engine, prompts) as left:
            assert left > 0, "a batch ends before all requests decode"
            start = time.perf_counter()
            run(engine, left)
            spans.append((start, time.perf_counter()))
            rounds += left
    mhz, watts = sampler.between(spans)
    return dict(first_ms=first_ms, ms=1e3 * sum(end - start for start, end in spans) / rounds, mhz=mhz, watts=watts)


def repeats(target: LlamaModel, shape: str, cell: Cell, acceptance: str, sampler: Sampler) -> dict[str, list[dict]]:
    prompts, pool = prompts_of(vocabulary(shape), cell), CachePool()
    make = partial(make_engine, target, cell.k, acceptance, cell.batch, cell.prompt + TOKENS + 64, PLANS["one"])
    engines = {name: make(backend(), cache_memory=pool.lease()) for name, backend in BACKENDS.items()}
    found: dict[str, list[dict]] = {name: [] for name in engines}
    for engine in engines.values():
        with steady(engine, prompts):  # captures and compiles what it needs
            run(engine, FIRST)
    for _ in range(REPEATS):
        for name, engine in engines.items():
            found[name].append(measured(engine, prompts, sampler))
    return found


def row(found: dict) -> str:
    """Of a table: as chosen, and how much longer a round takes with Triton's kernel."""
    k, load = found["cell"].split("/")
    chosen, triton = ([each["ms"] for each in found[name]] for name in BACKENDS)
    of = {key: statistics.median(each[key] for each in found["chosen"]) for key in ("first_ms", "ms", "mhz", "watts")}
    ratios = [a / b for a, b in zip(triton, chosen, strict=True)]
    figures = [f"{of['first_ms']:.2f}", f"{of['ms']:.2f} [{min(chosen):.2f}, {max(chosen):.2f}]"]
    figures += [f"{of['ms'] / of['first_ms']:.3f}", f"{of['mhz']:,.0f}", f"{of['watts']:.0f}"]
    ratio = f"{statistics.median(ratios):.3f} [{min(ratios):.3f}, {max(ratios):.3f}]"
    return f"| {' | '.join([found['shape'], k, load, *figures, ratio])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loads", nargs="+", metavar="SHAPE,ACCEPTANCE_LENGTH,K/BxPROMPT,...")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    sampler, found = Sampler(), []
    sampler.start()
    print("| shape | K | load | at first, ms | sustained, ms | ratio | MHz | W | Triton / chosen |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- |")
    for shape, acceptance, *words in (load.split(",") for load in args.loads):
        with torch.inference_mode():
            target = dummy_target(shape, torch.bfloat16, torch.device("cuda"))
            for word in words:
                of_cell = repeats(target, shape, Cell.parse(word), f"synthetic:{acceptance}", sampler)
                found.append(dict(shape=shape, cell=word, **of_cell))
                print(row(found[-1]), flush=True)
                if args.output:
                    args.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
