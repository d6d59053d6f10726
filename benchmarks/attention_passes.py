"""A target's captured passes as they run on and on, with attention as chosen and in Triton alone: time, clock, power.

    PYTHONPATH=.ns python3 benchmarks/attention_passes.py llama-3.1-8b 32x5x4224 64x5x4224 1x1x200 --output passes.json

Loads are REQUESTSxROWSxKEYS: so many rows of each request, whose last keys are theirs (random bf16 weights, with logits
and argmax, forward_gpu.py). Each pass is replayed for `SECONDS`, in turns, `REPEATS` times after one on a cool GPU that
does not count, and in the opposite order every other time. Printed are milliseconds of one pass, the median with its
range, and medians of the clock of the multiprocessors and of the power, sampled by nvidia-smi. Unlike rounds
(sustained_rounds.py), passes need no prompts, so that long contexts take seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from forward_gpu import Pass, captured
from sustained_rounds import BACKENDS, Sampler

from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.loader import dummy_target

REPEATS, SECONDS, AT_ONCE = 4, 0.8, 8
SETTLING_S = 0.2  # of a repeat, before the clock and the power count


def replayed(graph: torch.cuda.CUDAGraph, sampler: Sampler) -> dict[str, float]:
    graph.replay()
    torch.cuda.synchronize()
    start, count = time.perf_counter(), 0
    while (end := time.perf_counter()) < start + SECONDS:
        for _ in range(AT_ONCE):
            graph.replay()
        torch.cuda.synchronize()
        count += AT_ONCE
    mhz, watts = sampler.between([(start + SETTLING_S, end)])
    return dict(ms=1e3 * (end - start) / count, mhz=mhz, watts=watts)


def measure(target: LlamaModel, load: str, sampler: Sampler) -> dict[str, list[dict[str, float]]]:
    """SystemExit where the logits of the two do not agree."""
    run = Pass(target, *map(int, load.split("x")))
    torch.cuda.synchronize()  # lengths and pages are read early
    graphs, logits = {}, {}
    for name, backend in BACKENDS.items():
        run.attention = target.attention(backend(), run.batch.parts[0].meta.max_kv)
        logits[name] = target.logits(target.forward(run.batch, run.attention, run.caches)).float()
        graphs[name] = captured(run)
    error = float((logits["chosen"] - logits["triton"]).abs().max() / logits["triton"].abs().max())
    if not error < 0.05:
        raise SystemExit(f"{load}: logits differ by {error:.3f} of the largest; nothing is timed")
    found: dict[str, list[dict[str, float]]] = {name: [] for name in graphs}
    for repeat in range(-1, REPEATS):
        for name in graphs if repeat % 2 else reversed(graphs):
            timed = replayed(graphs[name], sampler)
            found[name] += [timed] if repeat >= 0 else []
    return found


def row(load: str, name: str, repeats: list[dict[str, float]]) -> str:
    ms, mhz, watts = ([each[key] for each in repeats] for key in ("ms", "mhz", "watts"))
    median = f"{statistics.median(ms):.3f} [{min(ms):.3f}, {max(ms):.3f}]"
    return f"| {load} | {name} | {median} | {statistics.median(mhz):,.0f} | {statistics.median(watts):.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape")
    parser.add_argument("loads", nargs="+", metavar="REQUESTSxROWSxKEYS")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    sampler, found = Sampler(), {}
    sampler.start()
    print("| load | attention | ms of a pass | MHz | W |\n| --- | --- | --- | ---: | ---: |")
    with torch.inference_mode():
        target = dummy_target(args.shape, torch.bfloat16, torch.device("cuda"))
        for load in args.loads:
            found[load] = measure(target, load, sampler)
            for name, repeats in found[load].items():
                print(row(load, name, repeats), flush=True)
            if args.output:
                args.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
