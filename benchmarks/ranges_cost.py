"""What NVTX ranges and the step log cost our engine: decode time with each, with both and with neither, in turn.

    PYTHONPATH=.ns python3 benchmarks/ranges_cost.py --output ranges.json smollm2-135m,2.5,0/1x128,4/1x128,0/128x128

Random weights and forced acceptance, as in benchmarks/decode_ours.py. Without the step log no row is made; nsys is not
attached, so a range costs what it costs a run that nsys could be attached to. The garbage collector rests. Medians of
interleaved repeats; in parentheses the spread, (max - min) / median. The ratio is to neither, by repeat.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from decode_ours import Timed
from decode_timer import DecodeTimer
from race_workers import cells_of

from specbench.harness.engines.native.core import readback
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.models.loader import dummy_target
from specbench.harness.engines.no_gc import no_collection
from specbench.harness.engines.ranges import ranges_named

VARIANTS = {"neither": ("off", False), "NVTX": ("nvtx", False), "step log": ("off", True), "both": ("nvtx", True)}


@contextmanager
def variant(engine: Engine, ranges: str, has_log: bool) -> Iterator[None]:
    made, engine.ranges = readback.StepRow, ranges_named(ranges)
    if not has_log:
        readback.StepRow = lambda *_: None
    try:
        yield
    finally:
        readback.StepRow = made


def tps_of(engine: Engine, timer: DecodeTimer, num_repeats: int) -> dict[str, list[float]]:
    """TPS by variant and repeat. The number of batches of a figure is found first, without a variant."""
    timer.settle()
    tps: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(num_repeats):
        for name, (ranges, has_log) in VARIANTS.items():
            gc.collect()
            with variant(engine, ranges, has_log), no_collection():
                tps[name].append(timer.tps())
    return tps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loads", nargs="+", metavar="SHAPE,ACCEPTANCE_LENGTH,[K/]BxPROMPT,...")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--output-tokens", type=int, default=256)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    found = []
    print("| shape | cell | " + " | ".join(f"{name}, TPS" for name in VARIANTS) + " | neither / both [min, max] |")
    print("| --- | --- |" + " ---: |" * len(VARIANTS) + " --- |")
    for words in args.loads:
        shape, acceptance, *loads = words.split(",")
        with torch.inference_mode():
            target = dummy_target(shape, torch.bfloat16, torch.device("cuda"))
            for cell in (cell for each in cells_of(loads).values() for cell in each):
                timed = Timed(target, cell, float(acceptance), args.output_tokens)
                tps = tps_of(timed.engine, timed.timer, args.repeats)
                found.append(dict(shape=shape, cell=str(cell), tps=tps))
                ratios = [a / b for a, b in zip(tps["neither"], tps["both"], strict=True)]
                shown = [f"{statistics.median(t):,.0f} ({_spread(t):.1%})" for t in tps.values()]
                ratio = f"{statistics.median(ratios):.3f} [{min(ratios):.3f}, {max(ratios):.3f}]"
                print(f"| {shape} | {cell} | " + " | ".join(shown) + f" | {ratio} |", flush=True)
                if args.output:
                    device = torch.cuda.get_device_name()
                    args.output.write_text(json.dumps(dict(device=device, cells=found), indent=1) + "\n")


def _spread(values: list[float]) -> float:
    return (max(values) - min(values)) / statistics.median(values)


if __name__ == "__main__":
    main()
