"""What benchmarks/race.md says of the host, its threads and cores, is what was kept."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

import pandas as pd
from benchmark_pages import BENCHMARKS


def _kept(name):
    return json.loads((BENCHMARKS / "results" / name).read_text())


def test_figures_without_the_threads_of_all_cores():
    text = " ".join((BENCHMARKS / "race.md").read_text().split())
    figures = _kept("host-threads-h200.json")["figures"]
    before, now = ([one for one in figures if one["code"] == code] for code in ("3cfc7964", "0e9201b1"))
    tps = [sorted(round(one["tps"]) for one in each) for each in (before, now)]
    assert f"{tps[0][0]:,} to {tps[0][-1]:,} TPS, six now {tps[1][0]:,} to {tps[1][-1]:,}" in text and len(now) == 6
    cpu = [statistics.mean(one["cpu_ms"] for one in each) for each in (before, now)]
    assert f"cost {cpu[0]:.0f} ms of processor time, now {cpu[1]:.0f}." in text
    first = [
        (min(one["first_ms"][0] for one in each), max(one["first_ms"][2] for one in each)) for each in (before, now)
    ]
    assert f"{first[0][0]:.0f} to {first[0][1]:.0f} ms, now {first[1][0]:.0f} to {first[1][1]:.0f}," in text


def test_cores_of_the_host():
    text = " ".join((BENCHMARKS / "race.md").read_text().split())
    kept = _kept("host-cores-h200.json")
    medians, least, most, _ = zip(*kept["cores"], strict=True)
    by_core = f"in the median {min(medians):.2f} to {max(medians):.2f} by core"
    assert f"took {min(least):.2f} to {max(most):.2f} ms, {by_core}; " in text
    _, *best = kept["best"]
    assert f"the fastest of {len(kept['cores'])} cores took {best[0]:.2f} to {best[1]:.2f}." in text
    figures = kept["figures"]
    assert f"each of {len(figures)} figures" in text
    waiting = {
        has_two: max(o["waiting_s"] for o in figures if o["vllm"].endswith("two cores") is has_two)
        for has_two in (True, False)
    }
    assert waiting[False] <= 1e-3 and f"{1e3 * waiting[True]:.0f} ms where it had two cores only" in text
    loops = [ms for one in figures for ms in one["loop_ms"]]
    assert f"took {min(loops):.0f} to {max(loops):.0f} ms. Where both took less than 17 (" in text
    in_process = [one for one in figures if not one["vllm"].endswith("process of its own")]
    assert {round(one["cores_used"], 1) for one in in_process} == {1.0}
    by_cell = pd.DataFrame(in_process)
    by_cell["share"] = by_cell["tps"] / by_cell.groupby(["k", "batch"])["tps"].transform("median")
    fast, slow = (
        by_cell["share"][chosen] for chosen in (by_cell["loop_ms"].map(max) < 17, by_cell["loop_ms"].map(min) > 17)
    )
    assert f"({len(fast)} figures), vLLM's figures were {fast.min():.2f} to {fast.max():.2f} times" in text
    assert (
        f"took more ({len(slow)}) {slow.min():.2f} to {slow.max():.2f} times, {slow.median():.2f} in the median" in text
    )
    fastest = pd.DataFrame([one for one in figures if (one["k"], one["batch"]) == (0, 1)]).groupby("vllm")["tps"].max()
    one, own, two = (f"OMP_NUM_THREADS=1{more}" for more in ("", ", process of its own", ", two cores"))
    assert f"were {fastest[one]:.0f}, {fastest[two]:.0f} and {fastest[own]:.0f} TPS" in text
    assert f"with its defaults {fastest['threads of all cores']:.0f}." in text


def test_each_core_is_timed_in_each_scan(tmp_path):
    words = [sys.executable, BENCHMARKS / "host_cores.py", "--seconds", "0.2", "--output", tmp_path / "cores.json"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    kept = json.loads((tmp_path / "cores.json").read_text())
    assert kept["scans"] and all(len(ms) == len(kept["cores"]) and min(ms) > 0 for ms in kept["scans"])
    assert told[0].startswith(f"{len(kept['scans'])} scans of {len(kept['cores'])} cores; ")
    assert [line.split(" | ")[0] for line in told[3:]] == [f"| {core}" for core in kept["cores"]]
