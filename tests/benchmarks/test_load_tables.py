"""The tables of arrivals, of loads and of K by load in benchmarks/*.md are those of the stored repeats."""

from __future__ import annotations

import json
import statistics
import sys

import numpy as np
import pytest
from benchmark_pages import BENCHMARKS, cells_of, lines_of, section

from specbench.harness.engines.native.build import usual_mixed_chunk
from specbench.harness.engines.native.models.shapes import SHAPES

sys.path.insert(0, str(BENCHMARKS))

from arrivals_race import misses, ratios, table  # noqa: E402

RACE, STRATEGIES = "race.md", "strategies.md"
MEASURES = "requests_per_s", "ttft_ms_median", "itl_ms_p99", "ttft_ms_p99"
ARMS = [f"eagle:k={k}" for k in (2, 3, 4, 6, "auto")]


def _kept(name: str) -> list | dict:
    return json.loads((BENCHMARKS / "results" / name).read_text(encoding="utf-8"))


def _assert_on_the_page(rows: list) -> None:
    header, marks, *cells = table(rows).splitlines()
    page = lines_of(RACE)
    start = page.index(cells[0]) - 2
    assert page[start : start + 2 + len(cells)] == [header, marks, *cells]


def test_arrivals():
    rows = _kept("arrivals-h100.json")
    _assert_on_the_page(rows)
    assert not any(map(misses, rows)) and {len(row["ours"]) for row in rows} == {2}


@pytest.mark.parametrize(("name", "k"), [("-no-spec", 0), ("", 4)])
def test_arrivals_of_8b(name, k):
    """With the default of prompt tokens beside decodes."""
    rows = _kept(f"arrivals-8b{name}-h200.json")
    _assert_on_the_page(rows)
    assert not any(map(misses, rows)) and [row["load"] for row in rows] == ["c64", "c256", "r40", "r20"]
    chunk = usual_mixed_chunk(SHAPES["llama-3.1-8b"].config, k)
    assert {(row["ours_settings"]["mixed_chunk_size"], len(row["ours"])) for row in rows} == {(chunk, 2)}


def test_prompt_tokens_beside_decodes():
    tried = _kept("arrivals-chunks-h200.json")
    names = "race_512", "", "race_573", "race_2048", "race", "k4_429", "", "k4_1024", "k4_2048"
    chosen = [_kept("arrivals-8b-no-spec-h200.json"), _kept("arrivals-8b-h200.json")]
    shown = [
        cells_of(line) for line in section(RACE, "Prompt tokens beside decodes") if line.startswith(("| 0", "| 4"))
    ]
    for name, (k, most, _, turns, *figures) in zip(names, shown, strict=True):
        by_load = {row["load"]: row for row in (tried[name] if name else chosen.pop(0))}
        any_row = by_load["c64"]
        assert (k, turns) == (str(any_row["k"]), str(len(any_row["ours"]))) and most.startswith("**") == (not name)
        if settings := any_row.get("ours_settings"):  # not kept with the figures of three older ones
            assert f"{settings['max_num_batched_tokens' if 'rows' in most else 'mixed_chunk_size']:,}" in most
        for measure, said in zip(MEASURES, figures, strict=True):
            ratio = {load: f"{statistics.median(ratios(row, measure)):.2f}" for load, row in by_load.items()}
            assert said == ", ".join(ratio.get(load, "–") for load in ("c64", "c256", "r40", "r20"))
    text = " ".join(" ".join(lines_of(RACE)).split())
    assert f"against its better turn their P99 ITL is {_against_the_better_turn(tried['race_512'])}." in text


def _against_the_better_turn(rows: list) -> str:
    by_load = {}
    for row in rows:
        ours, theirs = ([turn["itl_ms_p99"] for turn in row[side]] for side in ("ours", "vllm"))
        by_load[row["load"]] = statistics.median(ours) / min(theirs)
    return _listed([by_load[load] for load in ("c64", "c256", "r40")])


def _listed(figures: list[float]) -> str:
    *others, last = (f"{figure:.2f}" for figure in figures)
    return f"{', '.join(others)} and {last}"


def test_arrivals_on_an_h200():
    """The text gives ratios of requests/s in service, also to vLLM's of an older race, and of P99 TTFT with 256."""
    older, now = _kept("arrivals-smollm2-h200.json").values()
    assert not any(map(misses, [*older, *now])) and {len(row["ours"]) for row in now} == {2}
    served = [(row, before) for row, before in zip(now, older, strict=True) if row["load"][0] == "c"]
    rates = [statistics.median(ratios(row, "requests_per_s")) for row, _ in served]
    against_older = [_median_rate(row, "ours") / _median_rate(before, "vllm") for row, before in served]
    late = [statistics.median(ratios(row, "ttft_ms_p99")) for row, _ in served if row["load"] == "c256"]
    text = " ".join(" ".join(lines_of(RACE)).split())
    assert f"{_listed(rates)} times vLLM's requests/s" in text and f"we serve {_listed(against_older)} times" in text
    assert "P99 TTFT with 256 at once is {:.2f} and {:.2f} times".format(*late) in text


def _median_rate(row: dict, side: str) -> float:
    return statistics.median(turn["requests_per_s"] for turn in row[side])


def _report(name: str, label: str) -> tuple[list[str], list[str]]:
    """An arm in a sweep's report, in TPOT and in TPS: speed-ups by load, break-even, its interval."""
    report = (BENCHMARKS / "results" / f"{name}-h200.md").read_text(encoding="utf-8").replace("\\", "")
    tpot, tps, *_ = [cells_of(line)[1:] for line in report.splitlines() if line.startswith(f"| {label} |")]
    return tpot, tps


def _speedups(tpot: list[str], tps: list[str]) -> list[str]:
    """At each load TPOT with its interval, and in brackets TPS; of no-spec TPOT."""
    found = []
    for at_load, tokens in zip(tpot[:-2], tps[:-2], strict=True):
        speedup = tokens.partition("(")[2].partition(" [")[0]
        found.append(f"{at_load} ({speedup})" if speedup else at_load.removesuffix(" ms"))
    return found


def _break_even(cells: list[str]) -> str:
    at, interval = cells[-2].partition(" (")[0].removeprefix("-"), cells[-1].removeprefix("-")
    return at if at == interval else f"{at} [{interval}]"


def _arms(name: str, num_cells: int) -> dict[str, list[str]]:
    """Rows of a section's table with so many cells, by arm."""
    rows = [cells_of(line) for line in section(STRATEGIES, name) if line.startswith(("| `", "| no-spec"))]
    return {arm.strip("`").removesuffix(", TPOT ms"): cells for arm, *cells in rows if len(cells) == num_cells}


def test_loads():
    """Speed-ups in TPOT with intervals, and in TPS, of both reports."""
    rows = _arms("The same loads once mixed steps are captured", 6)
    assert list(rows) == ["no-spec", *(f"eagle:k={k}" for k in (2, 3, 4, 6))]
    for label, found in rows.items():
        low, high = (_report(f"loads-{name}", label) for name in ("low", "high"))
        assert found == [*_speedups(*low), *_speedups(*high), _break_even(high[0])]


def test_loads_of_other_strategies():
    rows = _arms("The same loads once mixed steps are captured", 4)
    methods = ["no-spec", "eagle", "naive-eagle", "naive-eagle", "ngram", "eagle-topk", "draft-model"]
    assert [label.partition(":")[0] for label in rows] == methods
    for label, found in rows.items():
        tpot, tps = _report("strategies-high", label)
        assert found == [*_speedups(tpot, tps), _break_even(tpot), _break_even(tps)]


def test_data_sets_of_other_strategies():
    """Acceptance length and speed-up in TPOT at 32 by data set, then TTFT at 32 and 128; of no-spec TPOT and TTFT."""
    rows = _arms("The same loads once mixed steps are captured", 7)
    report = (BENCHMARKS / "results" / "strategies-high-h200.md").read_text(encoding="utf-8").replace("\\", "")
    at_32 = report.partition("## By data set, concurrency 32")[2].partition("## ")[0]
    assert len(rows) == 7
    for label, found in rows.items():
        of_sets = [cells for cells in map(cells_of, at_32.splitlines()) if len(cells) == 6 and cells[1] == label]
        by_set = [
            tpot if label == "no-spec" else f"{accepted.split()[0]}, {float(ratio.split()[0]):.2f}x"
            for *_, accepted, tpot, ratio in of_sets
        ]
        ttft = [cells[1] for cells in map(cells_of, report.splitlines()) if len(cells) == 3 and cells[0] == label]
        assert found == [*by_set, *ttft] and len(by_set) == 5 and len(ttft) == 2


def test_findings_of_loads():
    """Rows of K=6 and of `auto` in the table of findings."""
    (row,) = [line for line in lines_of("README.md") if line.startswith("| `eagle` with the shipped head is faster")]
    found: dict[str, list[str]] = {"TPOT": [], "TPS": []}
    for name, loads in (("low", slice(0, 2)), ("high", slice(1, 3))):
        tpot, tps = _report(f"loads-{name}", "eagle:k=6")
        found["TPOT"] += [cell.partition(" ")[0] for cell in tpot[loads]]
        found["TPS"] += [cell.partition("(")[2].partition(" ")[0] for cell in tps[loads]]
    for figure, (*others, last) in found.items():
        assert f"{', '.join(others)} and {last} in {figure}" in row
    (row,) = [line for line in lines_of("README.md") if line.startswith("| `k=auto` has the TPOT")]
    assert ", ".join(f"{load['ratio'][0]:.3f}" for load in _kept("auto-k-h200.json")["loads"]) in row


def test_k_by_load():
    """The first table is of TPOT, the second of TPS."""
    rows = [
        cells_of(line) for line in section(STRATEGIES, "K by load") if line.startswith("| ") and line[2:3].isdigit()
    ]
    loads = _kept("auto-k-h200.json")["loads"]
    assert len(rows) == 2 * len(loads) == 8
    for tpot, tps, load in zip(rows[:4], rows[4:], loads, strict=True):
        medians = {arm: statistics.median(repeats) for arm, repeats in load["tpot_ms"].items()}
        assert tpot[0] == tps[0] == str(load["max_concurrency"])
        assert tpot[1:6] == [f"{medians[arm]:.4f}" for arm in ARMS]
        shares = sorted(load["share_of_rounds"].items())
        assert tpot[6] == ", ".join(f"{k}: {share:.0%}" for k, share in shares)
        ratio, low, high = load["ratio"]
        assert tpot[7] == f"{ratio:.3f} [{low:.3f}, {high:.3f}]" and low > 0.98
        assert load["best"] == min(ARMS[:-1], key=medians.__getitem__)

        medians = {arm: statistics.median(repeats) for arm, repeats in load["tps"].items()}
        assert tps[1:6] == [f"{medians[arm]:,.0f}" for arm in ARMS]
        assert tps[6] == _ratio(load["tps"][ARMS[-1]], load["tps"][max(ARMS[:-1], key=medians.__getitem__)])


def test_wait_for_the_first_token_at_128():
    ttft_ms = _kept("auto-k-h200.json")["loads"][-1]["ttft_ms"]
    said = f"{ttft_ms['eagle:k=auto']:.1f} ms with `auto` and {ttft_ms['eagle:k=4']:.1f} ms with K=4"
    assert said in " ".join(line.strip() for line in section(STRATEGIES, "K by load"))


def _ratio(ours: list[float], theirs: list[float]) -> str:
    """Median over repeats, with a 95% bootstrap interval."""
    ratios = np.divide(ours, theirs)
    drawn = np.random.default_rng(0).choice(ratios, (4000, len(ratios)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return f"{np.median(ratios):.3f} [{low:.3f}, {high:.3f}]"
