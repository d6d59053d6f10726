"""Decode throughput of our engine and vLLM on one GPU, turn by turn: random weights, forced acceptance.

    PYTHONPATH=.ns python3 benchmarks/decode_race.py --vllm-path /tmp/vllm --seconds 90 --output race.json \\
        llama-3.1-8b,3.0,1x128,8x128,1x4096 smollm2-135m,2.5,1x128,8x128

A race is SHAPE[@GPUS],ACCEPTANCE_LENGTH,[K/]BxPROMPT,...: without K/, a cell runs without speculation and with K = 4.
@2 splits both engines' models among two GPUs (tensor parallelism). All engines are loaded first (ours checks its
outputs then); after that one turn of ours and one of vLLM alternate until `--seconds` are over for the shape, so that a
change of the machine's speed meets both. A turn's figure is (tokens - B) / (time - time of one token each), host time.
Printed: medians of all turns, spread (max - min) / median, the ratio by turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DRAFTS = (0, 4)  # of a cell that names none


@dataclass(frozen=True, slots=True)
class Cell:
    k: int
    batch: int
    prompt: int

    @classmethod
    def parse(cls, word: str) -> Cell:
        k, _, load = word.partition("/")
        batch, _, prompt = load.partition("x")
        return cls(int(k), int(batch), int(prompt))

    def __str__(self) -> str:
        return f"{self.k}/{self.batch}x{self.prompt}"


class Worker:
    """Processes, one a rank, that have the engines of some cells and time them when they are asked."""

    def __init__(self, command: list[str], environments: list[dict[str, str]], cells: Sequence[Any]):
        self.cells = cells
        self._processes = [
            subprocess.Popen(
                [*command, *map(str, cells)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for environment in environments
        ]

    def read(self, key: str) -> Any:
        """The next message of rank 0 with `key`; engines print other lines too. SystemExit when it has ended."""
        first = self._processes[0]
        assert first.stdout is not None
        for line in first.stdout:
            if line.startswith("{") and key in (message := json.loads(line)):
                return message[key]
        raise SystemExit(f"{' '.join(first.args[1:3])} ended with status {first.wait()}")

    def ask(self, words: str) -> Any:
        """The figures that rank 0 answers to a line for all ranks."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{words}\n")
            process.stdin.flush()
        return self.read("figures")

    def turn(self) -> dict[Cell, float]:
        """Every cell once."""
        return dict(zip(self.cells, self.ask("turn"), strict=True))

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def cells_of(loads: list[str], parse: Callable[[str], Any] = Cell.parse) -> dict[int, list[Any]]:
    """By K, in the order in which they were named."""
    words = [word for load in loads for word in ([load] if "/" in load else [f"{k}/{load}" for k in DRAFTS])]
    found = [parse(word) for word in words]
    return {k: [cell for cell in found if cell.k == k] for k in sorted({cell.k for cell in found})}


class Race:
    """Both engines of one shape."""

    def __init__(self, words: str, num_tokens: int, vllm_path: str):
        self.shape, self.acceptance, *loads = words.split(",")
        cells = cells_of(loads)
        num_ranks = int(self.shape.partition("@")[2] or 1)
        arguments = [self.shape, self.acceptance, str(num_tokens)]
        self._meeting = tempfile.TemporaryDirectory(prefix="decode-race-")
        ranks = [
            {**os.environ, "RANK": str(rank), "MEETING": f"{self._meeting.name}/ranks"} for rank in range(num_ranks)
        ]
        ours = [sys.executable, str(HERE / "decode_ours.py"), *arguments]
        theirs = [sys.executable, str(HERE / "decode_vllm.py"), *arguments]
        self.ours = Worker(ours, ranks, [cell for each in cells.values() for cell in each])
        self.theirs = [Worker(theirs, [{**os.environ, "PYTHONPATH": vllm_path}], each) for each in cells.values()]

    def wait(self) -> None:
        self.checks = dict(zip(self.ours.cells, self.ours.read("checks"), strict=True))
        for worker in self.theirs:
            worker.read("ready")

    def run(self, seconds: float) -> list[dict]:
        """A row for each cell with the figures of all turns."""
        ours: dict[Cell, list[float]] = {cell: [] for cell in self.ours.cells}
        theirs: dict[Cell, list[float]] = {cell: [] for cell in self.ours.cells}
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(ours[self.ours.cells[0]]) < 2:
            for cell, tps in self.ours.turn().items():
                ours[cell].append(tps)
            for worker in self.theirs:
                for cell, tps in worker.turn().items():
                    theirs[cell].append(tps)
        return [
            dict(
                shape=self.shape,
                acceptance_length=float(self.acceptance) if cell.k else None,
                k=cell.k,
                batch=cell.batch,
                num_prompt=cell.prompt,
                check=self.checks[cell],
                ours_tps=ours[cell],
                vllm_tps=theirs[cell],
            )
            for cell in self.ours.cells
        ]

    def close(self) -> None:
        for worker in (self.ours, *self.theirs):
            worker.close()
        self._meeting.cleanup()


def spread(values: list[float]) -> float:
    return (max(values) - min(values)) / statistics.median(values)


def table(rows: list[dict]) -> str:
    lines = [
        "| shape | K | B | prompt | ours, TPS | spread | vLLM, TPS | spread | ratio [min, max] | equal / near-tie |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for row in rows:
        ours, theirs = row["ours_tps"], row["vllm_tps"]
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        cells = [
            *(row["shape"], row["k"], row["batch"], f"{row['num_prompt']:,}"),
            *(f"{statistics.median(ours):,.0f}", f"{spread(ours):.1%}"),
            *(f"{statistics.median(theirs):,.0f}", f"{spread(theirs):.1%}"),
            f"{statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]",
            row["check"].replace(" identical, ", " / ").replace(" diverge at a near-tie", ""),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("races", nargs="+", metavar="SHAPE[@GPUS],ACCEPTANCE_LENGTH,[K/]BxPROMPT,...")
    parser.add_argument("--vllm-path", required=True, help="folder that holds the package vllm")
    parser.add_argument("--seconds", type=float, default=90, help="of each shape")
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    races: list[Race] = []
    rows: list[dict] = []
    try:
        for words in args.races:
            races.append(Race(words, args.output_tokens, args.vllm_path))
        for race in races:
            race.wait()
        for race in races:
            rows += race.run(args.seconds)
            if args.output:
                args.output.write_text(json.dumps(rows, indent=1) + "\n")
    finally:
        for race in races:
            race.close()
    print(table(rows))


if __name__ == "__main__":
    main()
