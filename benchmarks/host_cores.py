"""How steady the cores of this machine are: one loop of Python on each in turn, while nothing else of ours runs.

    python3 benchmarks/host_cores.py --seconds 20 --output cores.json

In virtual machines a core is often half of a physical one: while a neighbour uses the other half, the same loop takes
up to twice as long. Linux does not show that: it is no steal time, no waiting and no other process. Engines that the
host limits are as slow as the core that their thread is on. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

LOOP = 4000  # turns, about 0.13 ms
PAUSE_S = 0.05  # between two scans of all cores
SLOW = 1.25  # times the fastest: beyond this a loop shared its physical core


def loop_ms() -> float:
    start, x = time.perf_counter(), 0
    for i in range(LOOP):
        x += i & 3
    return 1e3 * (time.perf_counter() - start)


def scan(cores: list[int]) -> list[float]:
    """The faster of two loops on each core, ms."""
    found = []
    for core in cores:
        os.sched_setaffinity(0, {core})
        found.append(min(loop_ms(), loop_ms()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    cores, scans = sorted(os.sched_getaffinity(0)), []
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        scans.append(scan(cores))
        time.sleep(PAUSE_S)
    fastest = statistics.median(map(min, scans))
    by_core = list(zip(*scans, strict=True))
    slow = [sum(ms > SLOW * fastest for ms in each) / len(scans) for each in by_core]
    args.output.write_text(json.dumps(dict(cores=cores, scans=[[round(ms, 4) for ms in each] for each in scans])))
    print(f"{len(scans)} scans of {len(cores)} cores; the fastest loop of a scan takes {fastest:.3f} ms (median)")
    print("| core | median / fastest | most | slow |\n| ---: | ---: | ---: | ---: |")
    for core, each, share in zip(cores, by_core, slow, strict=True):
        print(f"| {core} | {statistics.median(each) / fastest:.2f} | {max(each) / fastest:.2f} | {share:.0%} |")


if __name__ == "__main__":
    main()
