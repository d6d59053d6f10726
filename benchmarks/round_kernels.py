"""GPU time of each kernel in the steady decode rounds of our engine, from torch.profiler.

    PYTHONPATH=.ns python3 benchmarks/round_kernels.py llama-3.1-8b 4/64x128 0/64x128
    PYTHONPATH=.ns python3 benchmarks/round_kernels.py llama-2-70b@2 --layers 16 --output kernels.json 4/64x128

Cells and engines are those of decode_race.py (K/BxPROMPT; random weights, acceptance forced to 3.0, the round in one
CUDA graph). @2: two ranks, of which the first is reported. --layers: only the first so many, where all of them would
take long to load. Printed: milliseconds of a round without the profiler; for each kernel, launches a round and by how
many microseconds it prolongs the round: a kernel that starts early and waits for its inputs counts from the end of
those before it, so that all kernels and the idle time add up to the round.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import torch
from decode_ours import group_of, make_engine
from peer_shapes import prompts_of, vocabulary
from race_workers import Cell
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import Request, SamplingParams
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.loader import dummy_target
from specbench.harness.engines.no_gc import no_collection
from specbench.harness.spec.plans import PLANS
from specbench.kernels.attention.base import AttentionBackend

WARM_ROUNDS, ROUNDS, TOKENS = 4, 8, 128


def engine_in_steady_rounds(
    target: LlamaModel,
    shape: str,
    cell: Cell,
    acceptance: str = "synthetic:3.0",
    attention: AttentionBackend | None = None,
) -> Engine:
    max_len = cell.prompt + TOKENS + 64
    engine = make_engine(target, cell.k, acceptance, cell.batch, max_len, PLANS["one"], attention)
    fill(engine, prompts_of(vocabulary(shape), cell))
    return engine


def fill(engine: Engine, prompts: list[tuple[int, ...]]) -> list[Request]:
    """Until all decode, and `WARM_ROUNDS` more."""
    requests = [Request(i, prompt, SamplingParams(max_tokens=TOKENS, seed=i)) for i, prompt in enumerate(prompts)]
    for request in requests:
        engine.add(request)
    while not all(request.output_ids for request in requests):
        engine.step()
    run(engine, WARM_ROUNDS)
    return requests


def run(engine: Engine, rounds: int) -> float:
    """Milliseconds of a round."""
    with no_collection():
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(rounds):
            engine.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e3 / rounds


def measure(target: LlamaModel, shape: str, cell: Cell) -> dict:
    engine = engine_in_steady_rounds(target, shape, cell)
    ms = run(engine, ROUNDS)
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        run(engine, WARM_ROUNDS + ROUNDS)  # the first while another rank's profiler may still start
    while engine.has_work:
        engine.step()
    events = sorted((e for e in trace.events() if e.device_type == DeviceType.CUDA), key=lambda e: e.time_range.start)
    events = events[len(events) * WARM_ROUNDS // (WARM_ROUNDS + ROUNDS) :]
    found: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    end = events[0].time_range.start
    for event in events:
        found[event.name][0] += 1 / ROUNDS
        found[event.name][1] += max(0.0, event.time_range.end - max(end, event.time_range.start)) / ROUNDS
        end = max(end, event.time_range.end)
    span_us = (end - events[0].time_range.start) / ROUNDS
    kernels = sorted(([name, *figures] for name, figures in found.items()), key=lambda row: -row[2])
    return dict(cell=str(cell), ms=ms, span_us=span_us, kernels=kernels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", metavar="SHAPE[@GPUS]")
    parser.add_argument("cells", nargs="+", metavar="K/BxPROMPT")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    shape, _, num_ranks = args.shape.partition("@")
    others = []
    if num_ranks and "RANK" not in os.environ:
        os.environ["MEETING"] = tempfile.mkdtemp() + "/meeting"
        for rank in range(1, int(num_ranks)):
            others.append(subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": str(rank)}))
        os.environ["RANK"] = "0"
    with torch.inference_mode():
        group = group_of(int(num_ranks or 1))
        device = torch.device("cuda", torch.cuda.current_device())
        target = dummy_target(shape, torch.bfloat16, device, num_layers=args.layers, group=group)
        rows = [dict(shape=args.shape, layers=args.layers, **measure(target, shape, Cell.parse(c))) for c in args.cells]
    if group.rank == 0:
        for row in rows:
            print(f"{args.shape} {row['cell']}: {row['ms']:.3f} ms")
            for name, launches, us in row["kernels"][:14]:
                print(f"{us:9.1f} us {launches:7.1f}x {name[:100]}")
        if args.output:
            args.output.write_text(json.dumps(rows) + "\n")
    if any([other.wait() for other in others]):
        raise SystemExit("another rank failed")


if __name__ == "__main__":
    main()
