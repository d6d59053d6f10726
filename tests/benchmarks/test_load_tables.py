"""The tables of arrivals, of loads and of K by load in benchmarks/README.md are those of the stored repeats."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from arrivals_race import misses, table  # noqa: E402

README = (BENCHMARKS / "README.md").read_text(encoding="utf-8").splitlines()


def _kept(name: str) -> list | dict:
    return json.loads((BENCHMARKS / "results" / name).read_text(encoding="utf-8"))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_arrivals():
    rows = _kept("arrivals-h100.json")
    printed = table(rows).splitlines()
    start = README.index(printed[0])
    assert README[start : start + len(printed)] == printed
    assert not any(map(misses, rows)) and {len(row["ours"]) for row in rows} == {2}


def test_arrivals_of_8b():
    rows = _kept("arrivals-8b-h200.json")["chunks of 2048"]
    printed = table(rows).splitlines()
    start = README.index(printed[2])
    assert README[start - 2 : start + len(rows)] == printed
    assert [misses(row) for row in rows] == [["ITL P99, ms"], [], ["ITL P99, ms"], ["ITL P99, ms"]]


def test_loads():
    """Speed-ups in TPOT with intervals, and in TPS, of both reports."""
    start = README.index("### The same loads once mixed steps are captured")
    rows = [_cells(line) for line in README[start : start + 25] if line.startswith(("| `eagle:k=", "| no-spec"))]
    assert [row[0] for row in rows[1:]] == [f"`eagle:k={k}`" for k in (2, 3, 4, 6)]
    for arm, *found in rows:
        label, expected = arm.strip("`").removesuffix(", TPOT ms"), []
        for name, num_loads in (("low", 2), ("high", 3)):
            report = (BENCHMARKS / "results" / f"loads-{name}-h200.md").read_text(encoding="utf-8").replace("\\", "")
            tpot, tps, *_ = [_cells(line)[1:] for line in report.splitlines() if line.startswith(f"| {label} |")]
            ends = tpot[num_loads]
            for at_load, tokens in zip(tpot[:num_loads], tps, strict=False):
                speedup = tokens.partition("(")[2].partition(" [")[0]
                expected.append(f"{at_load} ({speedup})" if speedup else at_load.removesuffix(" ms"))
        assert found == [*expected, ends.partition(" (")[0].removeprefix("-")]


def test_k_by_load():
    start = README.index("### K by load")
    rows = [_cells(line) for line in README[start : start + 25] if line.startswith("| ") and line[2:3].isdigit()]
    loads = _kept("auto-k-h200.json")["loads"]
    assert len(rows) == len(loads) == 4
    for row, load in zip(rows, loads, strict=True):
        medians = {arm: statistics.median(repeats) for arm, repeats in load["tpot_ms"].items()}
        assert row[0] == str(load["max_concurrency"])
        assert row[1:6] == [f"{medians[f'eagle:k={k}']:.3f}" for k in (2, 3, 4, 6, "auto")]
        shares = sorted(load["share_of_rounds"].items())
        assert row[6] == ", ".join(f"{k}: {share:.0%}" for k, share in shares)
        ratio, low, high = load["ratio"]
        assert row[7] == f"{ratio:.3f} [{low:.3f}, {high:.3f}]"
        fixed = {arm: ms for arm, ms in medians.items() if arm != "eagle:k=auto"}
        assert load["best"] == min(fixed, key=fixed.__getitem__)
