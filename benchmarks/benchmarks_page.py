"""The Benchmarks page of the example site: what was measured, readable in two minutes.

Every figure comes from a file kept in this folder, and the page links to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import kept
from kept import HERE, kept_file
from proof_tables import experiments, noise, num_changed, witnessed_rounds, witnesses
from pull_request_tables import pull_requests
from race_tables import arrivals, tensor_parallelism
from stored_rounds import own_round, vllm_round

from specbench.reports.cells import share
from specbench.reports.charts.chart import Axis, Chart, Styles, small_charts
from specbench.reports.document import Cell, Command, Fact, Section, Table
from specbench.reports.profile.cells import duration
from specbench.reports.profile.timeline import timeline, timeline_span_ns
from specbench.reports.site.page import Page
from specbench.reports.site.runs import SiteRun


def benchmarks_page(runs: Sequence[SiteRun]) -> Page:
    """`runs`: those of the site, to which the page links."""
    pages = {run.path.name: run for run in runs}
    sections = [
        _short(),
        _against_vllm(),
        tensor_parallelism(),
        arrivals(),
        _acceptance(),
        _round(),
        *pull_requests(pages),
        witnesses(pages),
        noise(pages),
        _cells(),
        _vllm_round(),
    ]
    linked = {cell.href for section in sections for cell in _links(section) if cell.href.startswith("data/")}
    return Page(
        path="benchmarks.html",
        title="Benchmarks",
        lead="How fast specbench's engine is, how good its draft head is, and what other implementations confirm.",
        sections=tuple(sections),
        files={href: HERE / href.removeprefix("data/") for href in sorted(linked)},
    )


def _links(section: Section) -> list[Cell]:
    cells = [cell for table in section.tables for row in table.rows for cell in row if isinstance(cell, Cell)]
    return [*section.links, *cells]


def _short() -> Section:
    frame, (sharegpt, gsm8k) = kept.newest(kept.ratios("llama-3.1-8b")), kept.evaluations()
    highest, lowest = frame.loc[frame["y"].idxmax()], frame.loc[frame["y"].idxmin()]
    graphs, one = (own_round(arm).idle.verify_to_draft_idle_ns for arm in ("eagle", "naive-eagle"))
    equal, _ = experiments()
    facts = (
        *(
            Fact(
                name=f"{which} ratio to vLLM 0.26, 8B on one H200",
                value=f"{cell.y:.2f}x",
                note=f"{cell.series}, batch {cell.x}",
            )
            for which, cell in (("highest", highest), ("lowest", lowest))
        ),
        Fact(
            name=f"tokens per round, real prompts, K={sharegpt['k']}",
            value=f"{sharegpt['without_loops']['length']:.2f}",
            note=f"ShareGPT; GSM8K: {gsm8k['without_loops']['length']:.2f}; excluding outputs that loop",
        ),
        Fact(
            name="idle GPU before the drafter",
            value=f"{duration(one)}",
            note=f"with one graph; {duration(graphs)} with three and a host wait",
        ),
        Fact(
            name="rounds equal to EAGLE's own code and to vLLM's",
            value=witnessed_rounds(),
            note="same tokens, same drafts accepted; fp32",
        ),
        Fact(name="texts identical to lm-eval's hf model", value=kept.same_texts("lm-eval-cpu.md"), note="fp32, GSM8K"),
        Fact(
            name="identical sides called changed", value=f"{num_changed(equal)} of {len(equal)}", note="A/A experiments"
        ),
    )
    return Section(title="Summary", links=kept.kept_pages(), facts=facts)


def _against_vllm() -> Section:
    frame = kept.ratios("llama-3.1-8b")
    now, before = frame[~frame["dashed"]], frame[frame["dashed"]]
    newest = kept.newest(frame)
    ahead, behind = newest[newest["y"] >= 1], newest[newest["y"] < 1]
    said = [
        f"Llama-3.1-8B's shape on one H200: {ahead['y'].min():.2f}x to {ahead['y'].max():.2f}x vLLM 0.26.0's decode "
        f"tokens/s in {len(ahead)} of {len(newest)} cells, each as last measured.",
        *(f"vLLM is ahead in: {row.series}, batch {row.x}: {row.y:.2f}x." for row in behind.itertuples()),
        f"Solid, {len(now)} cells: all engines loaded on one GPU, taking turns. Dashed, {len(before)} cells: "
        "measured before kernels for few rows and programmatic dependent launches, one engine after the other.",
        "Random weights, greedy, acceptance forced to 3.0 tokens per round in both engines: only speed is compared.",
    ]
    chart = Chart(
        name="against-vllm",
        title="Decode tokens/s relative to vLLM 0.26.0, Llama-3.1-8B's shape, one H200",
        description="Above 1x, specbench is ahead. Solid: turn by turn; dashed: before kernels for few rows.",
        frame=small_charts(frame),
        x=Axis(title="batch (log scale)", scale="log2"),
        y=Axis(title="specbench / vLLM", unit="factor"),
        marks="lines",
        rule=1.0,
        styles=Styles().of(frame["series"]),
    )
    commands = (
        "PYTHONPATH=.ns python3 benchmarks/decode_race.py --vllm-path /tmp/vllm --seconds 0 --turns 10 "
        "--output race.json llama-3.1-8b,3.0,1x128,8x128,32x128,64x128,128x128"
    )
    return Section(
        title="Against vLLM 0.26 on one H200",
        links=(
            *(kept_file(f"results/{name}") for name in kept.RACES),
            kept_file("results/decode-h200.json"),
            kept_file("race.md", "how it was measured"),
        ),
        sentences=tuple(said),
        commands=(Command(name="Reproduce", text=commands),),
        charts=(chart,),
    )


def _cells() -> Section:
    rows = [
        (
            f"{row.shape}, {f'K={row.k}' if row.k else 'no speculation'}, batch {row.batch}, {row.num_prompt:,} tokens",
            f"{row.tps:,.0f}",
            f"{row.tps_vllm:,.0f}",
            f"{row.ratio:.2f}x",
            f"{row.low:.2f} to {row.high:.2f}",
            row.check.partition(" identical")[0],
        )
        for row in kept.decode_cells().itertuples()
    ]
    notes = (
        "TPS: medians over all turns; vLLM runs in process. Ratio: specbench / vLLM, median and range over turns. "
        "A figure of SmolLM2 covers half a second of decoding, one of 8B two, so host noise shows in SmolLM2's ranges.",
        "Identical: greedy outputs with real acceptance that equal those of specbench's eager engine without "
        "speculation; the others differ at a near-tie.",
    )
    headers = ("cell", "specbench TPS", "vLLM TPS", "ratio", "range over turns", "identical")
    table = Table(title="Cells with repeats", headers=headers, rows=tuple(rows), notes=notes)
    return Section(
        title="Every cell against vLLM",
        folded=True,
        links=tuple(kept_file(f"results/{name}") for name in kept.RACES),
        tables=(table,),
    )


def _acceptance() -> Section:
    frame = kept.acceptance()
    said = []
    for one in kept.evaluations():
        lengths = [
            f"{one[w]['length']:.2f} [{one[w]['low']:.2f}, {one[w]['high']:.2f}]" for w in ("all", "without_loops")
        ]
        said.append(
            f"{one['workload']}: {lengths[0]} tokens per round at K={one['k']}; {lengths[1]} without the "
            f"{one['num_loops']} of {one['all']['num_prompts']} outputs that loop."
        )
    chart = Chart(
        name="real-acceptance",
        title="Accepted by draft position: the shipped head, SmolLM2-135M-Instruct, real prompts, greedy",
        description="This draft and all before it accepted. Solid: all prompts; dashed: excluding outputs that loop.",
        frame=frame,
        x=Axis(title="draft position", scale="ordinal"),
        y=Axis(title="accepted", unit="share", range=(0, 1)),
        marks="lines",
        styles=Styles().of(frame["series"]),
    )
    command = "specbench check-head workloads/assets/heads/smollm2-135m-instruct --evaluate 200 --k 8"
    return Section(
        title="Real acceptance of the shipped head",
        links=(kept_file("results/head-acceptance-k8-h200.json"),),
        sentences=(*said, "Brackets: 95% interval over prompts. The head was not trained on these prompts."),
        commands=(Command(name="Reproduce", text=command),),
        charts=(chart,),
    )


def _round() -> Section:
    rounds = {"three graphs and one host wait": "eagle", "one graph": "naive-eagle"}
    profiles = {name: own_round(arm) for name, arm in rounds.items()}
    span = max(map(timeline_span_ns, profiles.values()))
    said = [
        f"With {name}, the GPU is idle for {duration(p.idle.verify_to_draft_idle_ns)} before the drafter "
        f"(per round: launches {p.graph.launches_per_round:g}, waits {p.syncs_per_round:g})."
        for name, p in profiles.items()
    ]
    return Section(
        title="One decode round",
        links=(kept_file("profiles.md", "what traces show about the pull requests"),),
        sentences=(
            *said,
            "EAGLE, K=2, two layers of SmolLM2-135M's shape on one H200. Median rounds under nsys: shares, not speed.",
        ),
        commands=(
            Command(
                name="Reproduce",
                text="specbench profile run -s eagle:k=2,head=random,graph=full_and_piecewise,sync=single "
                "-s naive-eagle:k=2,head=random --model smollm2-135m --num-layers 2 --load-format dummy "
                "--dataset-name sharegpt-lengths --max-concurrency 1 --num-prompts 1 --rounds 5 --tool nsys",
            ),
        ),
        timelines=tuple(timeline(p, f"A round with {name}", span) for name, p in profiles.items()),
    )


def _vllm_round() -> Section:
    profile = vllm_round("runner1.sqlite.xz")
    return Section(
        title="A round of vLLM 0.26 from its own trace",
        folded=True,
        sentences=(
            f"{profile.graph.launches_per_round:g} launches and {profile.syncs_per_round:g} waits per round; the GPU "
            f"is busy for {share(profile.gpu_busy_share)} of it. nsys slows launches: read shares, not speed.",
            "vLLM's V1 model runner, EAGLE-3, K=4, one request, SmolLM2-135M's shape, random weights, one H200.",
        ),
        links=(kept_file("profiles.md", "how it was traced"), kept_file("vllm_trace.py")),
        timelines=(timeline(profile, "A round of vLLM 0.26"),),
    )
