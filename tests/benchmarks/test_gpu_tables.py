"""The tables of GPU kernels and races in benchmarks/*.md are those of the stored repeats. Of the all-reduces, `auto` is
the fastest."""

from __future__ import annotations

import json
import operator
import statistics
import sys
from typing import Any

import pytest
from benchmark_pages import BENCHMARKS, cells_of, section

from specbench.harness.engines.native.models.all_reduce import best
from specbench.harness.roofline.ideal import STATED_SUMS

sys.path.insert(0, str(BENCHMARKS))

from cublas_algorithms import row as algorithms_row  # noqa: E402
from decode_race import against, ratios, spread  # noqa: E402
from products_gpu import products  # noqa: E402
from race_roofline import ideal  # noqa: E402
from sustained_rounds import row as sustained_row  # noqa: E402

METHODS = ("nccl", "one-shot", "two-shot", "fused")
MEASURED = [f"{method} {form}" for form in ("engine", "norm") for method in METHODS]


def _kept(name: str) -> Any:
    return json.loads((BENCHMARKS / "results" / name).read_text())


def _rows(page: str, heading: str, *starts: str) -> list[list[str]]:
    """Of the section's table."""
    return [cells_of(line) for line in section(page, heading) if line.startswith(starts)]


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_all_reduce(num_ranks):
    kept = _kept(f"all-reduce-h200-x{num_ranks}.json")
    rows = [row for row in _rows("kernels.md", "One all-reduce on two and four GPUs", "| ") if row[0] == str(num_ranks)]
    assert len(rows) == len(kept["repeats_us"]) == 11
    for (_, size, *figures, auto), (num_bytes, repeats) in zip(rows, kept["repeats_us"].items(), strict=True):
        medians = {name: statistics.median(repeats[name]) for name in MEASURED}
        assert size == f"{int(num_bytes) >> 10:,} KiB" and figures == [f"{medians[name]:.1f}" for name in MEASURED[1:]]
        can_fuse = int(num_bytes) <= 4 << 20
        chosen = best(int(num_bytes), num_ranks, can_fuse=can_fuse)
        assert auto == chosen == min(METHODS[: 4 if can_fuse else 3], key=lambda method: medians[f"{method} norm"])


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_no_sum_is_faster_than_the_roofline_assumes(num_ranks):
    kept = _kept(f"all-reduce-h200-x{num_ranks}.json")
    latency_s, bytes_per_s = STATED_SUMS[kept["device"], kept["num_ranks"]]
    for num_bytes, repeats in kept["repeats_us"].items():
        fastest_us = min(map(statistics.median, repeats.values()))
        assert 0.75 < 1e6 * (latency_s + int(num_bytes) / bytes_per_s) / fastest_us <= 1


@pytest.mark.parametrize(
    ("page", "heading", "name"),
    [
        ("race.md", "Decode on one H200 against vLLM 0.26", ""),
        ("race.md", "More cells", "-more"),
        ("race.md", "Tensor parallelism", "-tp"),
    ],
)
def test_race(page, heading, name):
    rows = [row for row in _rows(page, heading, "| llama", "| qwen", "| smollm2") if len(row) == 11]
    for row, cell in zip(rows, _kept(f"decode-race-h200{name}.json"), strict=True):
        assert row[:4] == [cell["shape"].removesuffix(":alone"), *map(str, (cell["k"], cell["batch"]))] + [
            f"{cell['num_prompt']:,}"
        ]
        assert row[4] == f"{statistics.median(cell['ours_tps']):,.0f}"
        assert row[6] == f"{statistics.median(cell['vllm_tps']):,.0f}"
        assert row[8] == against(cell, "vllm")
        assert [row[5], row[7]] == [f"{spread(cell[side]):.1%}" for side in ("ours_tps", "vllm_tps")]
        assert row[9] == str(len(cell["ours_tps"]))
        assert row[10] == cell["check"].replace(" identical, ", " / ").replace(" diverge at a near-tie", "")


RACED = {"8B": "llama-3.1-8b", "SmolLM2": "smollm2-135m", "Qwen2.5-1.5B": "qwen2.5-1.5b"}


def test_more_races_of_small_models():
    """Ratios by batch, in brackets those to vLLM's fastest turn, and ours at B=32."""
    cells = {}
    for race in _kept("decode-race-h200-busy-host.json"):
        cells[race["shape"], str(race["k"]), race["commit"], str(race["batch"])] = race
    rows = _rows("race.md", "More races of small models", "| smollm2", "| qwen2.5")
    assert sum(bool(figure) for row in rows for figure in row[4:8]) == len(cells)
    for shape, k, commit, turns, *figures, ours in rows:
        for batch, figure in zip(("1", "8", "32", "128"), figures, strict=True):
            race = cells.get((shape, k, commit, batch))
            if race is None:
                assert not figure
                continue
            ratio, median = statistics.median(ratios(race, "vllm")), statistics.median(race["ours_tps"])
            assert figure == f"{ratio:.2f} ({median / max(race['vllm_tps']):.2f})"
            assert turns == str(len(race["ours_tps"])) and (batch != "32" or ours == f"{median:,.0f}")


def test_ratios_and_targets():
    kept = [*_kept("decode-race-h200.json"), *_kept("decode-race-h200-more.json")]
    medians = {
        (cell["shape"], cell["num_prompt"], cell["k"], cell["batch"]): statistics.median(ratios(cell, "vllm"))
        for cell in kept
    }
    header, _, *rows = _rows("race.md", "Ratios to vLLM 0.26 and our targets", "| ")
    shown, missed = {}, []
    for what, *figures in rows:
        name, *prompt, drafts = what.split(", ")
        num_prompt = 4096 if prompt == ["4,096 prompt tokens"] else 128
        own = RACED[name], num_prompt, 0 if drafts == "no speculation" else int(drafts.removeprefix("K="))
        for batch, figure in zip(header[1:], figures, strict=True):
            ratio, _, target = figure.rstrip(")").partition(" (")
            if ratio:
                cell = (*own, int(batch.removeprefix("B=")))
                shown[cell] = float(ratio.strip("*"))
                missed += [figure] if target and medians[cell] < float(target) else []  # not as rounded
                assert ratio.startswith("**") == (figure in missed)
    assert shown == {cell: round(ratio, 2) for cell, ratio in medians.items()}
    assert len(shown) == 35 and len(missed) == 3 and min(shown.values()) > 1


def test_earlier_races():
    races: dict[tuple[str, ...], dict[str, str]] = {}
    for cell in _kept("decode-race-h200-earlier.json"):
        load = f"{cell['num_prompt']:,}", str(cell.get("num_output", 128))
        race = races.setdefault((cell["shape"], str(cell["k"]), *load, cell["commit"], str(len(cell["ours_tps"]))), {})
        race[str(cell["batch"])] = f"{statistics.median(ratios(cell, 'vllm')):.2f}"
    header, _, *rows = _rows("race.md", "Earlier races", "| ")
    shown = {tuple(row[:6]): dict(zip(["1", *header[7:]], row[6:], strict=True)) for row in rows}
    assert shown == {
        race: {batch: found.get(batch, "") for batch in ["1", *header[7:]]} for race, found in races.items()
    }


def test_the_order_of_reads():
    """Passes of variants beside those of the kernels as they are, in the same life of a machine."""
    passes = _kept("read-order-h200.json")["passes"]
    as_it_is = {(one["run"], one["shape"], one["load"], one["variant"]): one for one in passes}
    found, medians = {}, []
    for one in passes:
        if one["variant"].startswith("as it is"):
            continue
        own = "as it is, weights alone" if one["variant"] == "weights packed" else "as it is"
        base = as_it_is[one["run"], one["shape"], one["load"], own]
        by_repeat = [before / now for before, now in zip(base["us"], one["us"], strict=True)]
        shown = [f"{statistics.median(each['us']):,.0f}" for each in (base, one)]
        requests, rows, keys = one["load"].split("x")
        ratio = f"{statistics.median(by_repeat):.3f} [{min(by_repeat):.3f}, {max(by_repeat):.3f}]"
        load = f"{requests} x {rows}, {int(keys):,}"
        found[one["variant"], one["shape"], load] = [*shown, ratio]
        medians.append((one["variant"], ratio.split()[0]))
    rows = _rows("kernels.md", "The order of reads", "| ")[2:]
    assert len(rows) == 12
    for variant, shape, load, *figures in rows:
        assert figures == found[variant, shape, load]
    not_kept = {
        "| x shared": "gate/up, x shared",
        "| Prefetch": "prefetch",
        "| Inputs rotated": "inputs rotated",
        "| 256 bytes": "256 bytes",
        "| By head": "keys and values by head",
        "| Two or four lines of eight": ("two lines of eight", "four lines of eight"),
    }
    for start, variants in not_kept.items():
        ((_, effect, _),) = _rows("kernels.md", "What was tried and not kept", start)
        ratios = [ratio for variant, ratio in medians if variant.startswith(variants)]
        assert effect.startswith(min(ratios)) and (min(ratios) == max(ratios) or f" to {max(ratios)}" in effect)


def test_rows_copied_less_often():
    """Rounds of the first run, beside those of the launches before them."""
    found = {(each["cell"], each["variant"]): each for each in _kept("gemm-copies-h200.json")["runs"][0]["rounds"]}
    rows = _rows("kernels.md", "Rows copied less often", "| dbaca0a7", "| sums", "| and", "| both")
    assert len(rows) == 6
    for variant, *figures in rows:
        for cell, shown in zip(("4/8x128", "0/32x128"), (figures[:3], figures[3:]), strict=True):
            each, before = found[cell, variant], found[cell, rows[0][0]]
            ms = each["ms"]
            faster = statistics.median(old / new for old, new in zip(before["ms"], ms, strict=True))
            rounds = f"{statistics.median(ms):.2f} [{min(ms):.2f}, {max(ms):.2f}]"
            assert shown == [rounds, f"{faster:.3f}", f"{statistics.median(each['mhz']):,.0f}"]


def test_norms_in_products():
    kept = _kept("norms-in-products-h200.json")
    again = {
        (each["shape"], each["rows"]): each["ratios"]["deferred"] for each in kept["copied_ahead"] if each["run"] == 2
    }
    rows = _rows("kernels.md", "Norms fused into the GEMMs around them", "| llama", "| qwen", "| smollm2")
    used = [each for each in kept["norms"] if each["is_used"]]
    for shown, each in zip(rows, used, strict=True):
        own, new = each["norms_of_their_own_us"], each["in_products_us"]
        figures = [f"{us['median']:,} [{us['min']:,}, {us['max']:,}]" for us in (own, new)]
        other = again.get((each["shape"], each["rows"]))
        ratios = [f"{each['ratio']:.3f}", "" if other is None else f"{other:.3f}"]
        assert shown == [each["shape"], each["rows"], *figures, *ratios] and each["kernel"] == "bulk_gemm"


def test_norms_of_more_rows():
    kept = {(r["shape"], r["load"], r["variant"]): r for r in _kept("norms-in-products-h200.json")["many_rows"]}
    rows = _rows("kernels.md", "Norms of more rows", "| llama", "| qwen")
    assert len(rows) == 7
    for shown in rows:
        pair = [kept[shown[0], shown[1], name] for name in ("norms of their own", "all in products")]
        passes = [f"{statistics.median(r['us']):,.0f} [{min(r['us']):,.0f}, {max(r['us']):,.0f}]" for r in pair]
        ratio = statistics.median(before / after for before, after in zip(*(r["us"] for r in pair), strict=True))
        mhz = " / ".join(f"{statistics.median(r['mhz']):,.0f}" for r in pair)
        joules = " / ".join(f"{statistics.mean(map(operator.mul, r['us'], r['w'])) / 1e6:.2f}" for r in pair)
        assert shown == [pair[0]["shape"], pair[0]["load"], *passes, f"{ratio:.3f}", mhz, joules]


def test_weights_copied_half_ahead():
    kept = [each for each in _kept("norms-in-products-h200.json")["copied_ahead"] if each["run"] == 3]
    for shown, each in zip(_rows("kernels.md", "Weights copied half ahead", "| llama", "| qwen"), kept, strict=True):
        ratios = [f"{each['ratios'][share]:.3f}" for share in ("2/3", "1/2", "1/3", "1/4", "1")]
        assert shown == [each["shape"], each["rows"], f"{each['norms_of_their_own_us']:,}", *ratios]


def test_sustained_rounds():
    kept = _kept("sustained-rounds-h200.json")["rounds"]
    assert _rows("kernels.md", "The power limit", "| llama") == [cells_of(sustained_row(each)) for each in kept]


def test_sglang_beside():
    rows = _rows("race.md", "Against SGLang", "| llama", "| smollm2")
    for row, cell in zip(rows, _kept("decode-race-h200-sglang.json"), strict=True):
        load = [str(cell[key]) for key in ("shape", "k", "batch")] + [f"{cell['num_prompt']:,}"]
        assert row[:4] == load and row[10] == str(len(cell["ours_tps"]))
        tps = [cell[f"{side}_tps"] for side in ("ours", "vllm", "sglang")]
        medians = [f"{statistics.median(each):,.0f}" for each in tps]
        assert [row[4], *row[6:8]] == medians and row[9] == against(cell, "sglang")
        assert [row[5], row[8]] == [f"{spread(tps[0]):.1%}", f"{spread(tps[2]):.1%}"]


def test_percent_of_roofline():
    found: dict[str, list[str]] = {}
    for cell in _kept("decode-race-h200-tp.json"):
        if cell["k"] == 0:
            name, _, num_ranks = cell["shape"].removesuffix(":alone").partition("@")
            key = f"{name} {num_ranks or 1}"
            found.setdefault(key, []).append(f"{statistics.median(cell['ours_tps']) / ideal(cell).tps:.0%}")
    rows = _rows("race.md", "Tensor parallelism", "| 8B", "| 70B")
    assert {row[0]: row[1:] for row in rows} == {
        {"llama-3.1-8b": "8B", "llama-2-70b": "70B"}[key.split()[0]] + f", TP {key.split()[1]}": shares
        for key, shares in found.items()
    }


def test_passes_over_49_to_128_rows():
    kept = _kept("forward-wgmma-h200.json")["passes"]
    rows = _rows("kernels.md", "Up to 160 rows", "| llama", "| qwen")
    for row, run in zip(rows, kept, strict=True):
        medians = {name: statistics.median(us) for name, us in run["us"].items()}
        ranges = {name: (max(us) - min(us)) / medians[name] for name, us in run["us"].items()}
        assert row[:2] == [run["shape"], run["rows"]] and row[6] == f"{run['limit_us'] / medians['chosen']:.1%}"
        assert row[2:6] == [f"{medians[name]:,.0f} ({ranges[name]:.1%})" for name in medians]


def test_cost_of_ranges():
    rows = _rows("kernels.md", "What NVTX ranges and the step log cost", "| smollm2", "| llama")
    for (shape, k, batch, *figures), cell in zip(rows, _kept("ranges-h200.json")["cells"], strict=True):
        assert (shape, f"{k}/{batch}x128") == (cell["shape"], cell["cell"])
        for figure, name in zip(figures, ("NVTX", "step log", "both"), strict=True):
            ratios = [b / a for a, b in zip(cell["tps"][name], cell["tps"]["neither"], strict=True)]
            assert figure == f"{statistics.median(ratios):.3f} [{min(ratios):.3f}, {max(ratios):.3f}]"


PARTS = {
    "GEMMs": ("nvjet", "splitK", "skinny", "bulk_gemm", "wgmma_gemm"),
    "attention": ("attention", "merge_splits"),
}


def _parts(kernels: list, round_us: float) -> list[str]:
    found = [sum(us for name, _, us in kernels if any(one in name for one in names)) for names in PARTS.values()]
    return [f"{us:,.0f}" for us in (*found, round_us - sum(found), round_us)]


def test_parts_of_a_round():
    kept = _kept("round-kernels-h200.json")
    rows = [
        row[1:]
        for row in _rows("kernels.md", "Where a round's time goes", "| GEMMs", "| attention", "| the rest", "| round")
    ]
    rounds = {(r["shape"][:4], r["cell"]): r for r in kept["later"]}
    cells = [
        ("llam", "4/8x128"),
        ("llam", "4/32x128"),
        ("llam", "4/64x128"),
        ("llam", "4/128x128"),
        ("llam", "4/32x4096"),
        ("llam", "0/32x4096"),
        ("qwen", "4/32x128"),
    ]
    for figures, cell in zip(zip(*rows, strict=True), cells, strict=True):
        assert list(figures) == _parts(rounds[cell]["kernels"], rounds[cell]["ms"] * 1e3)


def test_small_kernels_beside_gemms():
    text = " ".join((BENCHMARKS / "kernels.md").read_text().split())
    rounds = _kept("round-kernels-h200.json")["later"]

    def shares(kernel: str, shape: str, k: str = "") -> list[float]:
        own = [one for one in rounds if one["shape"] == shape and one["cell"].startswith(k)]
        return [us / one["ms"] / 1e3 for one in own for name, _, us in one["kernels"] if kernel in name]

    rope, argmax = (shares(name, "llama-3.1-8b") for name in ("rope_store_kv", "argmax"))
    assert f"after qkv, take {100 * min(rope):.1f} to {max(rope):.1%} of a round of 8B" in text and len(rope) == 6
    drafting = shares("argmax", "llama-3.1-8b", "4/")
    assert (
        f"{min(argmax):.2%} without speculation and {100 * min(drafting):.1f} to {max(drafting):.1%} with K=4" in text
    )
    qwen = [share for name in ("rope_store_kv", "argmax") for share in shares(name, "qwen2.5-1.5b")]
    assert f"(Qwen2.5-1.5B: {100 * qwen[0]:.1f} and {qwen[1]:.1%})" in text


def test_attention_of_few_rows():
    kept = _kept("wgmma-attention-h200.json")
    rows = _rows("attention.md", "Attention of few rows in CUDA C++", "| 1", "| 3", "| 6", "| 8")
    passes = [each for each in kept["passes"] if "before" in each or each["keys"] > 1000]
    for row, each in zip([row for row in rows if len(row) == 6], passes, strict=True):
        before, now = each.get("before") or each["triton"], each["now"]
        by_turn = [a / b for a, b in zip(before["ms"], now["ms"], strict=True)]
        ratio = f"{statistics.median(by_turn):.3f} [{min(by_turn):.3f}, {max(by_turn):.3f}]"
        ms = [f"{statistics.median(found['ms']):.2f}" for found in (before, now)]
        clocks = [f"{found['mhz']:,}" for found in (before, now)]
        assert row == ["{requests}x{rows}x{keys:,}".format(**each), *ms, ratio, *clocks]
    names = {32: "8B", 9: "SmolLM2", 12: "Qwen2.5-1.5B"}
    launches = [each for each in kept["launches"] if each["machine"] == 2]
    rows = _rows("attention.md", "Attention of few rows in CUDA C++", *(f"| {name} |" for name in names.values()))
    for row, each in zip(rows, launches, strict=True):
        us = [f"{each[when]:.1f}" for when in ("before", "now")]
        assert row == [names[each["heads"]], "{requests}x{rows}x{keys:,}".format(**each), *us]


def test_attention_over_few_keys():
    """Each figure is one of the sweeps' of this case; the fastest is below no other."""
    kept = _kept("attention-launches-h200.json")["launches"]
    rows = [row for row in _rows("attention.md", "Attention over few keys", "| 1, ", "| 5, ")]
    assert len(rows) == 14
    for what, keys, at_most, before, table, fa3, fastest in rows:
        num_rows, requests = what.split(", ")
        own = [each for each in kept if each["case"] == f"8b:{requests}:{keys}:{num_rows}"]
        of_table = [each for each in own if each["max_kv"] == int(at_most)]
        timed = [us for each in own for us, _ in (each["chosen"], *each["fastest"])]
        assert float(fastest) == pytest.approx(min(timed), abs=0.051) and float(table) >= float(fastest)
        shown = [float(table), float(fa3), *([] if before == "-" else [float(before)])]
        found = [us for each in of_table for us, _ in (each["chosen"], *each["fastest"])]
        sources = [found, [each["flash_attention_3_us"] for each in of_table], [each["chosen"][0] for each in own]]
        for figure, source in zip(shown, sources, strict=False):
            assert min(abs(figure - us) for us in source) < 0.051


def test_cublas_algorithms():
    rows = _rows("kernels.md", "cuBLAS' algorithms", "| llama")
    assert rows == [cells_of(algorithms_row(found)) for found in _kept("cublas-algorithms-h200.json")["products"]]


def test_gemm_blocks():
    blocks = {(each["cell"], each["product"]): each for each in _kept("gemm-blocks-h200.json")["blocks"]}
    rows = _rows("kernels.md", "What GEMM blocks wait for", "| 0", "| 4")
    assert len(rows) == 12
    numbers = {product.name: product.num_bytes for product in products("llama-3.1-8b")}
    for k, batch, product, num_rows, *figures, limit in rows:
        found = blocks[f"{k}/{batch}x128", product]
        phases = ("until_input", "until_stage", "loop", "end", "until_next", "whole")
        assert num_rows == str(found["rows"]) and figures == [f"{found['us'][phase]:.1f}" for phase in phases]
        assert limit == f"{numbers[product] / 4.57e6:.1f}"
