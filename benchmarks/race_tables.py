"""Sections of the Benchmarks page about races with vLLM 0.26: on several cards, and while requests come and go."""

from __future__ import annotations

import statistics
from itertools import chain

import kept
from decode_race import ratios
from kept import kept_file

from specbench.reports.document import Section, Table

_SPLIT = {
    "Llama-3.1-8B, two GPUs": "llama-3.1-8b@2",
    "Llama-3.1-8B, four GPUs": "llama-3.1-8b@4",
    "Llama-2-70B, two GPUs": "llama-2-70b@2",
    "Llama-2-70B, four GPUs": "llama-2-70b@4",
}
_ARRIVALS = ("arrivals-h100.json", "arrivals-8b-h200.json", "arrivals-8b-no-spec-h200.json")
_HOW = kept_file("race.md", "how it was measured")


def tensor_parallelism() -> Section:
    """Models split among cards."""
    rows = kept.tensor_parallel_race()
    tables = tuple(
        Table(
            title=f"{title}, decode tokens/s",
            headers=("load", "specbench TPS", "vLLM TPS", "ratio (turns)"),
            rows=tuple(
                (
                    f"{_drafts(cell['k'])}, batch {cell['batch']}",
                    f"{statistics.median(cell['ours_tps']):,.0f}",
                    f"{statistics.median(cell['vllm_tps']):,.0f}",
                    _ratio(ratios(cell, "vllm")),
                )
                for cell in rows
                if cell["shape"].startswith(shape)
            ),
            notes=(f"{rows[0]['num_prompt']} prompt tokens, random weights, acceptance forced to 3.0 at K=4.",),
        )
        for title, shape in _SPLIT.items()
    )
    said = []
    for name, shape in (
        ("Llama-3.1-8B on two and four GPUs", "llama-3.1-8b@"),
        ("Llama-2-70B on two and four", "llama-2-70b@"),
    ):
        medians = [statistics.median(ratios(cell, "vllm")) for cell in rows if cell["shape"].startswith(shape)]
        said.append(f"{name}: {min(medians):.2f}x to {max(medians):.2f}x vLLM 0.26's decode tokens/s.")
    links = (kept_file("results/decode-race-h200-tp.json"), _HOW)
    return Section(title="Against vLLM 0.26 on two and four H200s", links=links, sentences=tuple(said), tables=tables)


def arrivals() -> Section:
    small, *large = (kept.arrivals(name) for name in _ARRIVALS)
    of_8b = list(chain(*large))
    tables = (
        _arrivals_table(
            "SmolLM2-135M's shape, one H100",
            small,
            "500 requests with ShareGPT's lengths, random weights, acceptance forced to 2.5 at K=4, two turns. "
            "Concurrency: the next request begins when one ends. Requests/s: Poisson arrivals.",
            "Latencies: specbench / vLLM. When 256 requests begin at once, our last first tokens come later than "
            "vLLM's, whose steps take eight times as many prompt tokens.",
        ),
        _arrivals_table(
            "Llama-3.1-8B's shape, one H200",
            of_8b,
            "As above, acceptance forced to 3.0 at K=4. Our step takes at most 429 prompt tokens beside decodes, in "
            "the race of K=4 573. K=4 and no speculation were raced on two H200s, one each.",
        ),
    )
    with_drafts, without = large
    worst = max(statistics.median(row["itl_ms_p99"]["ratios"]) for row in of_8b)
    said = (
        f"SmolLM2-135M: {_ratios_at_concurrency(small, '.1f')}",
        f"Llama-3.1-8B, K=4: {_ratios_at_concurrency(with_drafts, '.2f')}",
        f"Llama-3.1-8B, no speculation: {_ratios_at_concurrency(without, '.2f')}",
        f"Llama-3.1-8B: P99 ITL is at most {worst:.2f} times vLLM's (medians of two turns).",
    )
    links = (*(kept_file(f"results/{name}") for name in _ARRIVALS), _HOW)
    return Section(title="While requests come and go", links=links, sentences=said, tables=tables)


def _ratios_at_concurrency(rows: list[dict], digits: str) -> str:
    ratios = [statistics.median(row["requests_per_s"]["ratios"]) for row in rows if row["load"][0] == "c"]
    ends = dict.fromkeys(f"{ratio:{digits}}" for ratio in (min(ratios), max(ratios)))
    return f"{' to '.join(ends)} times vLLM 0.26's requests/s at concurrency 64 and 256."


def _arrivals_table(title: str, rows: list[dict], *notes: str) -> Table:
    headers = ("load", "specbench requests/s", "vLLM requests/s", "ratio (turns)", "median TTFT", "P99 ITL", "P99 TTFT")
    return Table(title=title, headers=headers, rows=tuple(map(_arrivals_cells, rows)), notes=notes)


def _arrivals_cells(row: dict) -> tuple[str, ...]:
    rate = row["requests_per_s"]
    kind, amount = row["load"][0], row["load"][1:]
    load = f"concurrency {amount}" if kind == "c" else f"{amount} requests/s"
    later = (statistics.median(row[name]["ratios"]) for name in ("ttft_ms_median", "itl_ms_p99", "ttft_ms_p99"))
    return (
        f"{_drafts(row['k'])}, {load}",
        f"{rate['ours']:,.1f}",
        f"{rate['vllm']:,.1f}",
        _ratio(rate["ratios"]),
        *(f"{ratio:.2f}" for ratio in later),
    )


def _drafts(k: int) -> str:
    return f"K={k}" if k else "no speculation"


def _ratio(of_turns: list[float]) -> str:
    return f"{statistics.median(of_turns):.2f}x ({min(of_turns):.2f} to {max(of_turns):.2f})"
