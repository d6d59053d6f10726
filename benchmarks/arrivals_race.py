"""Our engine and vLLM on one GPU while requests come and go: random weights, forced acceptance, ShareGPT's lengths.

    PYTHONPATH=.ns python3 benchmarks/arrivals_race.py --vllm-path /tmp/vllm --seconds 240 --output race.json \\
        smollm2-135m,2.5,c64,c256,r40,r80
    PYTHONPATH=.ns python3 benchmarks/arrivals_race.py --vllm-path /tmp/vllm --seconds 240 --output race.json \\
        llama-3.1-8b,3.0,0/c64,0/c256,0/r20,0/r40 llama-3.1-8b,3.0,4/c64,4/c256,4/r20,4/r40

A race is SHAPE,ACCEPTANCE_LENGTH,[K/]LOAD,...: without K/, a load is served without speculation and with K = 4. Loads
and measures: arrivals.py. Both engines serve the same prompts (random tokens with the lengths of ShareGPT), each with
exactly the same number of output tokens, at the same times. Races follow each other, each with engines of its own; two
engines of Llama-3.1-8B fit on a card of 80 GB, three do not. In a turn every cell is served once by both engines, one
after the other, in turns with the other first. Turns follow until `--seconds` are over for the race, but at least
`--turns` of them.

Printed: medians over turns, ours / vLLM, with the ratio [least, most] by turn; `misses` names what is not as wanted:
requests/s at least vLLM's, median TTFT at most 1.2 times vLLM's, P99 ITL at most vLLM's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from arrivals import MAX_MODEL_LEN, Cell, Requests
from decode_race import HERE, spread
from race_workers import Worker, at_least_one, cells_of, say

from specbench.workloads.arrivals import arrival_times
from specbench.workloads.base import WorkloadRequest
from specbench.workloads.sharegpt_lengths import load as sharegpt_lengths

VOCABULARY = 40_000  # Llama-2-70B, which is not raced here, has fewer
FA3 = "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so"
COLUMNS = {
    "requests_per_s": "requests/s",
    "output_tps": "output TPS",
    "ttft_ms_median": "TTFT median, ms",
    "ttft_ms_p99": "TTFT P99, ms",
    "itl_ms_p99": "ITL P99, ms",
    "tpot_ms_mean": "TPOT mean, ms",
}
WANTED = {  # (least, most) of ours / vLLM
    "requests_per_s": (1.0, float("inf")),
    "ttft_ms_median": (0.0, 1.2),
    "itl_ms_p99": (0.0, 1.0),
}


def requests_for(cells: list[Cell], num: int, max_output: int, seed: int) -> Requests:
    """`num` ShareGPT conversations, outputs capped, and the arrival times of each open load."""
    asked = WorkloadRequest(
        name="sharegpt-lengths", num_prompts=num, seed=seed, max_model_len=MAX_MODEL_LEN, vocab_size=VOCABULARY
    )
    prompts = sharegpt_lengths(asked).prompts
    return Requests(
        [list(prompt.token_ids) for prompt in prompts],
        [min(prompt.max_tokens, max_output) for prompt in prompts],
        {str(cell.load): arrival_times(num, cell.load.amount, seed) for cell in cells if not cell.load.is_closed},
    )


class Race:
    """Both engines of one shape, started together."""

    def __init__(self, words: str, args: argparse.Namespace):
        self.shape, self.acceptance, *loads = words.split(",")
        by_k = cells_of(loads, Cell.parse)
        self.cells = [cell for each in by_k.values() for cell in each]
        self._folder = tempfile.TemporaryDirectory(prefix="arrivals-race-")
        file = Path(self._folder.name) / "requests.json"
        requests_for(self.cells, args.num_requests, args.max_output, args.seed).write(file)
        library = Path(args.vllm_path) / FA3
        fa3 = {"FA3_SO": str(library)} if library.exists() and "FA3_SO" not in os.environ else {}
        ours = [f"--graph-mixed={args.graph_mixed}", f"--attention={args.attention}"]
        ours += [f"--max-num-batched-tokens={args.max_num_batched_tokens}"]
        ours += [f"--mixed-chunk-size={args.mixed_chunk_size}"]
        theirs = [f"--max-num-batched-tokens={args.vllm_batched_tokens}"] if args.vllm_batched_tokens else []
        theirs += [f"--capture-size={args.vllm_capture_size}"] if args.vllm_capture_size else []

        def worker(name: str, own: list[str], environment: dict[str, str], cells: list[Cell]) -> Worker:
            arguments = [*own, self.shape, self.acceptance, str(file)]
            return Worker([sys.executable, str(HERE / name), *arguments], [{**os.environ, **environment}], cells)

        self.ours = worker("arrivals_ours.py", ours, fa3, self.cells)
        of_vllm = {"PYTHONPATH": args.vllm_path}
        self.theirs = {k: worker("arrivals_vllm.py", theirs, of_vllm, cells) for k, cells in by_k.items()}

    def wait(self) -> None:
        about = self.ours.read("ready")
        vllm = {k: each.read("ready")["settings"] for k, each in self.theirs.items()}
        self.rows = [
            dict(
                shape=self.shape,
                acceptance_length=float(self.acceptance) if cell.k else None,
                k=cell.k,
                load=str(cell.load),
                check=about["checks"][str(cell.k)],
                ours_settings=about["settings"][str(cell.k)],
                vllm_settings=vllm[cell.k],
                ours=[],
                vllm=[],
            )
            for cell in self.cells
        ]

    def turn(self, number: int) -> None:
        for cell, row in zip(self.cells, self.rows, strict=True):
            sides = [("ours", self.ours), ("vllm", self.theirs[cell.k])]
            for side, worker in sides if number % 2 == 0 else sides[::-1]:
                row[side].append(worker.ask(str(cell)))
            figures = (f"{side} {row[side][-1]['requests_per_s']:.1f}" for side in ("ours", "vllm"))
            say(f"{self.shape} {cell}, turn {number + 1}: {', '.join(figures)} requests/s")

    def close(self) -> None:
        for worker in (self.ours, *self.theirs.values()):
            worker.close()
        self._folder.cleanup()


def ratios(row: dict, measure: str) -> list[float]:
    return [ours[measure] / theirs[measure] for ours, theirs in zip(row["ours"], row["vllm"], strict=True)]


def misses(row: dict) -> list[str]:
    """What the median ratio, to two digits, does not reach."""
    found = {name: round(statistics.median(ratios(row, name)), 2) for name in WANTED}
    return [COLUMNS[name] for name, (least, most) in WANTED.items() if not least <= found[name] <= most]


def table(rows: list[dict]) -> str:
    lines = [
        "| shape | K | load | " + " | ".join(COLUMNS.values()) + " | spread of requests/s | misses |",
        "| --- | ---: | --- |" + " --- |" * (len(COLUMNS) + 2),
    ]
    for row in rows:
        cells = [row["shape"], row["k"], row["load"]]
        for measure in COLUMNS:
            medians = [statistics.median(turn[measure] for turn in row[side]) for side in ("ours", "vllm")]
            by_turn = ratios(row, measure)
            digits = 0 if min(medians) >= 1000 else 1 if min(medians) >= 10 else 2
            values = " / ".join(f"{value:,.{digits}f}" for value in medians)
            cells.append(f"{values}: {statistics.median(by_turn):.2f} [{min(by_turn):.2f}, {max(by_turn):.2f}]")
        spreads = (spread([turn["requests_per_s"] for turn in row[side]]) for side in ("ours", "vllm"))
        cells += [" / ".join(f"{each:.1%}" for each in spreads), ", ".join(misses(row)) or "–"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("races", nargs="+", metavar="SHAPE,ACCEPTANCE_LENGTH,[K/]LOAD,...")
    parser.add_argument("--vllm-path", required=True, help="folder that holds the package vllm")
    parser.add_argument("--seconds", type=float, default=240, help="of each race, loading not counted")
    parser.add_argument("--turns", type=at_least_one, default=2, help="fewest, even if they take longer than --seconds")
    parser.add_argument("--num-requests", type=int, default=500)
    parser.add_argument("--max-output", type=int, default=256, help="cap of the data set's output lengths")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--graph-mixed", choices=("none", "piecewise", "full"), default="full", help="ours")
    parser.add_argument("--attention", default="flash-attention", help="ours: triton or flash-attention")
    parser.add_argument("--max-num-batched-tokens", type=int, default=2048, help="ours")
    parser.add_argument("--mixed-chunk-size", type=int, default=0, help="ours; 0: the model's, as in `specbench run`")
    parser.add_argument("--vllm-batched-tokens", type=int, help="vLLM's own default unless given")
    parser.add_argument("--vllm-capture-size", type=int, help="most rows of a graph; vLLM's own default unless given")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    finished: list[dict] = []
    for words in args.races:
        race = Race(words, args)
        try:
            race.wait()
            end, number = time.monotonic() + args.seconds, 0
            while time.monotonic() < end or number < args.turns:
                race.turn(number)
                number += 1
                if args.output:  # a race that is cut off keeps its turns
                    args.output.write_text(json.dumps([*finished, *race.rows], indent=1) + "\n")
        finally:
            race.close()
        finished += race.rows
        print(table(race.rows), flush=True)


if __name__ == "__main__":
    main()
