"""What attention in CUDA C++ is worth: steady decode rounds with it, and with Triton's kernel alone, in turn.

    PYTHONPATH=.ns python3 benchmarks/attention_rounds.py smollm2-135m,2.5,0/1x128,0/32x128 llama-3.1-8b,1.7,1/128x128

Engines are those of decode_race.py (K/BxPROMPT; random weights, acceptance forced to the length after the shape, the
round in one CUDA graph). Printed: microseconds of a round, medians of seven interleaved repeats of four rounds; in
brackets the range of Triton's time over ours. Outputs are not compared here: `pytest -m gpu tests/kernels` does that.
"""

from __future__ import annotations

import argparse
import json
import statistics
from functools import partial
from pathlib import Path

import torch
from race_workers import Cell
from round_kernels import engine_in_steady_rounds, run

from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.loader import dummy_target
from specbench.kernels.attention.launch import choose_launch
from specbench.kernels.attention.triton_attention import TritonAttention

REPEATS, ROUNDS = 7, 4
BACKENDS = {"triton": partial(TritonAttention, choose_launch), "cuda": TritonAttention}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loads", nargs="+", metavar="SHAPE,ACCEPTANCE_LENGTH,K/BxPROMPT,...")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    found = []
    print("| shape | K | load | Triton | CUDA C++ | Triton / CUDA C++ |\n| --- | ---: | --- | ---: | ---: | --- |")
    for shape, acceptance, *words in (load.split(",") for load in args.loads):
        with torch.inference_mode():
            target = dummy_target(shape, torch.bfloat16, torch.device("cuda"))
            for word in words:
                ms = measured(target, shape, Cell.parse(word), f"synthetic:{acceptance}")
                found.append(dict(shape=shape, cell=word, **ms))
                print(row(found[-1]), flush=True)
                if args.output:
                    args.output.write_text(json.dumps(found, indent=1) + "\n")


def measured(target: LlamaModel, shape: str, cell: Cell, acceptance: str) -> dict[str, list[float]]:
    engines = {
        name: engine_in_steady_rounds(target, shape, cell, acceptance, backend()) for name, backend in BACKENDS.items()
    }
    ms: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(REPEATS):
        for name, engine in engines.items():
            ms[name].append(run(engine, ROUNDS))
    for engine in engines.values():
        while engine.has_work:
            engine.step()
    return ms


def row(found: dict) -> str:
    ratios = [a / b for a, b in zip(found["triton"], found["cuda"], strict=True)]
    k, load = found["cell"].split("/")
    us = [f"{1e3 * statistics.median(found[name]):,.0f}" for name in BACKENDS]
    ratio = f"{statistics.median(ratios):.3f} [{min(ratios):.3f}, {max(ratios):.3f}]"
    return f"| {' | '.join([found['shape'], k, load, *us, ratio])} |"


if __name__ == "__main__":
    main()
