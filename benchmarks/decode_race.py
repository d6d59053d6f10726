"""Decode throughput of our engine and vLLM on one GPU, turn by turn: random weights, forced acceptance.

    PYTHONPATH=.ns python3 benchmarks/decode_race.py --vllm-path /tmp/vllm --seconds 90 --output race.json \\
        llama-3.1-8b,3.0,1x128,8x128,1x4096 smollm2-135m,2.5,1x128,8x128

A race is SHAPE,ACCEPTANCE_LENGTH,BxPROMPT,...: each cell runs without speculation and with K = 4. All engines are
loaded first (ours checks its outputs then); after that one turn of ours and one of vLLM alternate until `--seconds`
are over for the shape, so that a change of the machine's speed meets both. A turn's figure is (tokens - B) / (time -
time of one token each), host time. Printed: medians of all turns, spread (max - min) / median, the ratio by turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
NUM_DRAFTS = 4


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
    """A process that has the engines of some cells and times each once when it is asked."""

    def __init__(self, command: list[str], environment: dict[str, str], cells: list[Cell]):
        self.cells = cells
        self._process = subprocess.Popen(
            [*command, *map(str, cells)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def read(self, key: str) -> list:
        """The next message that has `key`; engines print other lines too. SystemExit when the process has ended."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{") and key in (message := json.loads(line)):
                return message[key]
        raise SystemExit(f"{' '.join(self._process.args[1:3])} ended with status {self._process.wait()}")

    def turn(self) -> dict[Cell, float]:
        assert self._process.stdin is not None
        self._process.stdin.write("turn\n")
        self._process.stdin.flush()
        return dict(zip(self.cells, self.read("tps"), strict=True))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Race:
    """Both engines of one shape."""

    def __init__(self, words: str, num_tokens: int, vllm_path: str):
        self.shape, self.acceptance, *loads = words.split(",")
        cells = {k: [Cell.parse(f"{k}/{load}") for load in loads] for k in (0, NUM_DRAFTS)}
        ours = [sys.executable, str(HERE / "decode_ours.py"), self.shape, self.acceptance, str(num_tokens)]
        theirs = [sys.executable, str(HERE / "decode_vllm.py"), self.shape, self.acceptance, str(num_tokens)]
        environment = {**os.environ, "PYTHONPATH": vllm_path}
        self.ours = Worker(ours, dict(os.environ), [*cells[0], *cells[NUM_DRAFTS]])
        self.theirs = [Worker(theirs, environment, cells[k]) for k in cells]

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
    parser.add_argument("races", nargs="+", metavar="SHAPE,ACCEPTANCE_LENGTH,BxPROMPT,...")
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
