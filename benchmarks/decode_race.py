"""Decode throughput of our engine, vLLM and, if asked for, SGLang, turn by turn: random weights, forced acceptance.

    PYTHONPATH=.ns python3 benchmarks/decode_race.py --vllm-path /tmp/vllm --seconds 90 --output race.json \\
        llama-3.1-8b,3.0,1x128,8x128,1x4096 smollm2-135m,2.5,1x128,8x128
    PYTHONPATH=.ns python3 benchmarks/decode_race.py --vllm-path /tmp/vllm --sglang-path /tmp/sglang-peer \\
        --output race.json llama-3.1-8b,3.0,4/1x128,4/32x128
    PYTHONPATH=.ns python3 benchmarks/decode_race.py --vllm-path /tmp/vllm --output-tokens 256 --seconds 120 \\
        --output race.json llama-2-70b@2:alone,3.0,1x128,64x128

A race is SHAPE[@GPUS][:alone],ACCEPTANCE_LENGTH,[K/]BxPROMPT,...: without K/, a cell runs without speculation and with
K = 4. @2 splits the engines' models among two GPUs (tensor parallelism). All engines are loaded first (ours checks its
outputs then), SGLang's last, so that it is the one that finds too little memory. Every engine then runs each cell twice
to find how many batches a figure takes; after that one turn of ours, one of vLLM and one of SGLang alternate, so that a
change of the machine's speed meets all, until `--seconds` are over for the shape, but for at least `--turns` turns.
vLLM and SGLang have one engine for each K: three engines of Llama-3.1-8B with 128 prompt tokens fit on a card of 80 GB,
five do not; with 32 prompts of 4,096 three do not fit on an H200. With :alone, for shapes that fit only once, engines
are loaded, timed and ended one after another: ours for its share of the seconds, then each K of the others.

A turn's figure is (tokens - B) / (time - time of one token each), host time, over as many batches as it takes to decode
for two seconds. Printed: medians of all turns, spread (max - min) / median, ours / theirs by turn; with :alone, of
all pairs of turns. A cell that SGLang cannot run is missing there, with the reason; when ours or vLLM fails, the race
ends.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from race_workers import Cell, MayFail, Worker, at_least_one, cells_of, environment_of, say

HERE = Path(__file__).parent
SIDES = {"ours": "ours", "vllm": "vLLM", "sglang": "SGLang"}


@dataclass(slots=True)
class Entry:
    """One worker of a race, which may not be started yet."""

    side: str
    start: Callable[[], Worker]
    worker: Worker | None = None

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()


class Race:
    """All engines of one shape. `sglang`: the environment of SGLang's workers, if it takes part."""

    def __init__(self, words: str, num_tokens: int, vllm_path: str, sglang: dict[str, str] | None = None):
        self.shape, self.acceptance, *loads = words.split(",")
        shape, _, how = self.shape.partition(":")
        if how not in ("", "alone"):
            raise SystemExit(f"race: {self.shape!r} is not allowed; allowed after a shape: :alone")
        self.is_alone, self.num_tokens = how == "alone", num_tokens
        by_k = cells_of(loads)
        self.cells = [cell for each in by_k.values() for cell in each]
        self._meeting = tempfile.TemporaryDirectory(prefix="decode-race-")
        meeting = Path(self._meeting.name)
        ranks = [
            {**os.environ, "RANK": str(rank), "MEETING": str(meeting / "ranks")}
            for rank in range(int(shape.partition("@")[2] or 1))
        ]

        def command(name: str) -> list[str]:
            return [sys.executable, str(HERE / name), shape, self.acceptance, str(num_tokens)]

        ours, theirs, third = map(command, ("decode_ours.py", "decode_vllm.py", "decode_sglang.py"))
        of_vllm = [{**os.environ, "PYTHONPATH": vllm_path}]
        self.entries = [Entry("ours", partial(Worker, ours, ranks, self.cells))]
        self.entries += [Entry("vllm", partial(Worker, theirs, of_vllm, cells)) for cells in by_k.values()]
        if sglang is not None:
            self.entries += [
                Entry("sglang", partial(MayFail, third, sglang, cells, meeting / f"sglang-{k}.log"))
                for k, cells in by_k.items()
            ]
        self.sides = list(dict.fromkeys(entry.side for entry in self.entries))
        self.tps: dict[str, dict[Cell, list[float]]] = {side: {cell: [] for cell in self.cells} for side in self.sides}
        self.checks: dict[Cell, str] = {}

    def load(self, *sides: str) -> None:
        for entry in self.entries:
            if entry.side in sides:
                entry.worker = entry.start()

    def wait(self, *sides: str) -> None:
        for entry in self.entries:
            if entry.side in sides:
                self._wait(entry)

    def _wait(self, entry: Entry) -> None:
        worker = entry.worker
        assert worker is not None
        if isinstance(worker, MayFail):
            worker.wait()
        elif entry.side == "ours":
            self.checks = dict(zip(worker.cells, worker.read("checks"), strict=True))
        else:
            worker.read("ready")

    def run(self, seconds: float, turns: int, save: Callable[[], None]) -> None:
        """Takes turns for `seconds`, but at least `turns` of each engine; calls `save` after each."""
        if not self.is_alone:
            self._turns(self.entries, seconds, turns, save)
            return
        for entry in self.entries:
            say(f"{self.shape}: {SIDES[entry.side]} is loaded")
            entry.worker = entry.start()
            self._wait(entry)
            share = len(self.sides) * sum(other.side == entry.side for other in self.entries)
            self._turns([entry], seconds / share, turns, save)
            entry.close()

    def _turns(self, entries: list[Entry], seconds: float, turns: int, save: Callable[[], None]) -> None:
        for entry in entries:
            assert entry.worker is not None
            entry.worker.settle()
        end, number = time.monotonic() + seconds, 0
        while time.monotonic() < end or number < turns:
            has_figures = False
            for entry in entries:
                assert entry.worker is not None
                for cell, tps in entry.worker.turn().items():
                    self.tps[entry.side][cell].append(tps)
                    has_figures = True
            number += 1
            save()
            say(f"{self.shape}: turn {number}, {max(0.0, end - time.monotonic()):.0f} of {seconds:.0f} s left")
            if not has_figures:
                break

    def rows(self) -> list[dict]:
        """A row for each cell with the figures of all turns until now."""
        rows = []
        for cell in self.cells:
            row: dict[str, Any] = dict(
                shape=self.shape,
                acceptance_length=float(self.acceptance) if cell.k else None,
                k=cell.k,
                batch=cell.batch,
                num_prompt=cell.prompt,
                num_output=self.num_tokens,
                check=self.checks.get(cell, ""),
                **{f"{side}_tps": self.tps[side][cell] for side in self.sides},
            )
            for worker in [entry.worker for entry in self.entries]:
                if isinstance(worker, MayFail) and cell in worker.cells:
                    row |= dict(sglang_missing=worker.missing.get(cell), sglang_accepted=worker.accepted.get(cell))
            rows.append(row)
        return rows

    def close(self) -> None:
        for entry in self.entries:
            entry.close()
        self._meeting.cleanup()


def spread(values: list[float]) -> float:
    return (max(values) - min(values)) / statistics.median(values)


def ratios(row: dict, side: str) -> list[float]:
    """Ours / theirs. Engines that took turns are compared by turn, others in all pairs; one that failed has fewer."""
    ours, theirs = row["ours_tps"], row[f"{side}_tps"]
    pairs = itertools.product(ours, theirs) if row["shape"].endswith(":alone") else zip(ours, theirs, strict=False)
    return [a / b for a, b in pairs]


def against(row: dict, side: str) -> str:
    found = ratios(row, side)
    return f"{statistics.median(found):.2f} [{min(found):.2f}, {max(found):.2f}]"


def table(rows: list[dict]) -> str:
    has_sglang = any("sglang_tps" in row for row in rows)
    names = ["shape", "K", "B", "prompt", "ours, TPS", "spread", "vLLM, TPS", "spread", "ratio [min, max]"]
    marks = ["---", *["---:"] * 7, "---"]
    if has_sglang:
        names += ["SGLang, TPS", "spread", "ours / SGLang [min, max]"]
        marks += ["---:", "---:", "---"]
    lines = [[*names, "equal / near-tie"], [*marks, "---"]]
    for row in rows:
        cells = [row["shape"], row["k"], row["batch"], f"{row['num_prompt']:,}"]
        for side in ("ours", "vllm", "sglang") if has_sglang else ("ours", "vllm"):
            if tps := row.get(f"{side}_tps"):
                cells += [f"{statistics.median(tps):,.0f}", f"{spread(tps):.1%}"]
                cells += [] if side == "ours" else [against(row, side)]
            else:
                cells += [f"missing: {row.get('sglang_missing') or 'not run'}", "–", "–"]
        cells.append(row["check"].replace(" identical, ", " / ").replace(" diverge at a near-tie", ""))
        lines.append(cells)
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("races", nargs="+", metavar="SHAPE[@GPUS][:alone],ACCEPTANCE_LENGTH,[K/]BxPROMPT,...")
    parser.add_argument("--vllm-path", required=True, help="folder that holds the package vllm")
    parser.add_argument("--sglang-path", help="folder with a setup.sh that sets SGLang up, or with the package sglang")
    parser.add_argument("--seconds", type=float, default=90, help="of each shape")
    parser.add_argument("--turns", type=at_least_one, default=2, help="fewest, even if they take longer than --seconds")
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a race that is stopped ends its workers
    sglang = environment_of(args.sglang_path) if args.sglang_path else None
    races: list[Race] = []
    finished: list[dict] = []

    def run(race: Race) -> None:
        def save() -> None:  # a race that is cut off keeps its turns
            if args.output:
                args.output.write_text(json.dumps([*finished, *race.rows()], indent=1) + "\n")

        race.run(args.seconds, args.turns, save)
        finished.extend(race.rows())

    try:
        for words in args.races:
            races.append(Race(words, args.output_tokens, args.vllm_path, sglang))
        together = [race for race in races if not race.is_alone]
        for sides in (("ours", "vllm"), ("sglang",)):
            for race in together:
                race.load(*sides)
            for race in together:
                race.wait(*sides)
        for race in together:
            run(race)
        for race in together:  # before the others, which need the whole cards
            race.close()
        for race in races:
            if race.is_alone:
                run(race)
    finally:
        for race in races:
            race.close()
    print(table(finished))


if __name__ == "__main__":
    main()
