"""profiles.md from what profile_keep.py kept: `PYTHONPATH=.ns python benchmarks/profile_tables.py`, its output."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import vllm_profiles

from specbench.reports.profile.cells import count, kernel_name, microseconds, phase_name, share
from specbench.reports.profile.labels import arm_titles

RESULTS = Path(__file__).parent / "results" / "profiles-h200"
CAUSES = ("host-late", "launch-latency-or-dependency", "back-to-back")

Arm = dict[str, Any]  # a profile.json, cut down, with the host's own figures of its rounds


def page() -> Iterator[str]:
    runs = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    yield HEAD
    yield from _two_tools(runs["five-nsys"], runs["five-torch"])
    yield from _waits(runs["pr20078"])
    yield from _drafter_graphs(runs["pr34880"])
    yield from _one_graph(runs["five-nsys"], runs["five-torch"])
    yield from _vllm()


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headers, ["---", *["---:"] * (len(headers) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _two_tools(nsys: Arm, torch: Arm) -> Iterator[str]:
    pairs = list(zip(nsys["arms"], torch["arms"], strict=True))
    yield "## Five strategies, two tools\n\n" + _indented(nsys["command"])
    yield "and the same with `--tool torch --no-twin`. One figure where both tools give the same, else nsys / torch.\n"
    names = _names(nsys["arms"])
    columns: dict[str, Callable[[Arm], str]] = {
        "launches": lambda a: count(a["graph"]["launches_per_round"]),
        "of graphs": lambda a: count(a["graph"]["graph_launches_per_round"]),
        "kernels from a graph": lambda a: share(a["graph"]["graph_share_kernels"]),
        "certificate": lambda a: a["graph"]["verdict"],
        "synchronisations (engine's own)": lambda a: _syncs(a),
        "idle verify to draft, µs": lambda a: microseconds(a["idle"]["verify_to_draft_idle_ns"]),
        "attributed": lambda a: share(a["quality"]["attributed_share"]),
    }
    rows = [
        [name, *(_both(figure, *pair) for figure in columns.values())] for name, pair in zip(names, pairs, strict=True)
    ]
    yield _table(["arm", *columns], rows)
    same = all(_counts(a) == _counts(b) for a, b in pairs)
    yield (
        f"Launches, graph share and synchronisations agree exactly: {'yes' if same else 'NO'}, in every phase and "
        "drafter pass.\n"
    )
    yield "Shares of GPU busy time, nsys / torch, and the largest difference over all phases and drafter passes:\n"
    phases = ("advance", "verify", "accept", "compact", "draft")
    shares = [
        [name, *(_both_shares(phase, a, b) for phase in phases), f"{max(_differences(a, b)) * 100:.2f}"]
        for name, (a, b) in zip(names, pairs, strict=True)
    ]
    yield _table(["arm", *phases, "points"], shares)
    most = max(max(_differences(*pair)) for pair in pairs) * 100
    yield f"The tools differ by {most:.2f} points at most, in any arm.\n"
    yield "What the profilers cost: the median round, by the host's clock, against the same rounds unprofiled:\n"
    rows = [
        [name, *(microseconds(ns) for ns in times), *(f"{ns / times[0]:.2f}x" for ns in times[1:])]
        for name, (a, b) in zip(names, pairs, strict=True)
        for times in [(a["slow_down"]["unprofiled_round_ns"], a["host_round_ns"], b["host_round_ns"])]
    ]
    yield _table(["arm", "unprofiled, µs", "nsys, µs", "torch, µs", "nsys", "torch"], rows)
    yield (
        "Rounds that are graphs cost 4 to 11% more under nsys; the arm with 172 launches costs half as much "
        "again, so its idle time between verify and draft is partly the profiler's. The unprofiled rounds ran in "
        "the nsys command.\n"
    )


def _waits(run: Arm) -> Iterator[str]:
    yield "## vLLM PR 20078: how often does the host wait, and why is the GPU idle before the drafter?\n"
    yield _indented(run["command"])
    names, shared = _names(run["arms"]), arm_titles([a["subject"]["arm"] for a in run["arms"]]).shared
    rows = [
        [
            name,
            _syncs(arm),
            "; ".join(f"{count(s['per_round'])} {s['kind']}" for s in arm["syncs"] if s["kind"] != "late") or "none",
            count(arm["graph"]["launches_per_round"]),
            microseconds(arm["idle"]["verify_to_draft_idle_ns"]),
            *(microseconds(arm["idle"]["verify_to_draft_by_cause_ns"][cause]) for cause in CAUSES),
            microseconds(arm["idle"]["total_ns"]),
            share(arm["gpu_busy_share"]),
        ]
        for name, arm in zip(names, run["arms"], strict=True)
    ]
    headers = ("synchronisations (engine's own)", "kinds", "launches", "idle verify to draft, µs")
    more = ("host late", "launch latency or dependency", "back to back", "idle a round, µs", "GPU busy")
    yield _table(["arm", *headers, *more], rows)
    yield (
        f"All with {', '.join(shared)}. Idle from verify to draft: median; its causes: means, µs. It does not "
        "count the acceptance kernels that run in between.\n"
    )
    yield (
        "Four synchronisations become one, then none, as the engine counts them itself. Before the drafter the "
        "GPU waits for the host in the first two arms; with graphs and no synchronisation no gap there has the "
        "host as its cause. Two things change at once in the third arm (synchronisation and graphs), and "
        "`naive-eagle` drafts one token, not four. No unprofiled twin ran: nsys inflates the gaps of the first "
        "two arms most, so they are upper bounds. The one wait for an older round that the last two make is for "
        "its status (drafting goes on meanwhile), and not in the count.\n"
    )


def _drafter_graphs(run: Arm) -> Iterator[str]:
    yield "## vLLM PR 34880: does the drafter really run in a full CUDA graph?\n"
    yield _indented(run["command"])
    arms = sorted(run["arms"], key=lambda arm: -arm["graph"]["launches_per_round"])
    rows = []
    for name, arm in zip(("eager", "piecewise drafter", "full_and_piecewise"), arms, strict=True):
        steps = [p for p in arm["phases"] if p["phase"] == "draft"]
        rows.append([
            name,
            *(f"{share(p['graph_share_kernels'])} of {count(p['kernels'])}" for p in steps),
            ", ".join(f"{count(p['eager_launches'])} + {count(p['graph_launches'])}" for p in steps),
            count(arm["graph"]["launches_per_round"]),
            microseconds(arm["idle"]["total_ns"]),
            share(arm["gpu_busy_share"]),
            arm["graph"]["verdict"],
        ])  # fmt: skip
    headers = [f"draft step {i}: kernels from a graph" for i in range(3)]
    more = ("launches by step, eager + graph", "launches a round", "idle a round, µs", "GPU busy", "certificate")
    yield _table(["drafter", *headers, *more], rows)
    yield (
        "Yes: every kernel of every drafter pass comes from a graph, one launch for the first pass and one for "
        "all later ones. Piecewise, attention, one projection and the small kernels between passes stay eager: "
        "about half. Torch's profiler, no unprofiled twin: counts are exact, idle times of the eager arms are "
        "inflated.\n"
    )


def _one_graph(nsys: Arm, torch: Arm) -> Iterator[str]:
    yield "## SGLang PR 6995: one graph for the whole round, split into phases\n"
    yield "`naive-eagle:k=4,head=random` of the first command: one launch a round, split by counts at capture.\n"
    (a,), (b,) = ([arm for arm in run["arms"] if arm["subject"]["strategy"] == "naive-eagle"] for run in (nsys, torch))
    rows = [
        [
            phase_name(p["phase"], p["draft_step"]),
            _both(lambda x: count(x["kernels"]), p, q),
            f"{microseconds(p['gpu_busy_ns'])} / {microseconds(q['gpu_busy_ns'])}",
            f"{share(p['busy_share'])} / {share(q['busy_share'])}",
            _both(lambda x: share(x["graph_share_kernels"]), p, q),
        ]
        for p, q in zip(a["phases"], b["phases"], strict=True)
        if p["phase"] != "host"
    ]
    yield _table(["phase", "kernels", "GPU busy, µs (nsys / torch)", "of GPU busy", "from the graph"], rows)
    attention = [k for k in a["kernels"] if k["is_attention"] and k["phase"] == "verify"]
    said = " and ".join(f"`{kernel_name(k['name'])}` ({microseconds(k['mean_ns'])} µs)" for k in attention)
    yield (
        f"{share(a['quality']['attributed_share'])} of the GPU's busy time has a phase. Attention in verify: "
        f"{said}. The status is a copy behind the graph. Phases of a graph have no host time of their own.\n"
    )


def _vllm() -> Iterator[str]:
    intro, rows, said = vllm_profiles.section()
    yield "## vLLM's own rounds, imported\n"
    yield intro
    yield _table(vllm_profiles.HEADERS, rows)
    yield said


# -- cells -----------------------------------------------------------------------------------------------------------


def _names(arms: Sequence[Arm]) -> tuple[str, ...]:
    return arm_titles([arm["subject"]["arm"] for arm in arms]).titles


def _syncs(arm: Arm) -> str:
    return f"{count(arm['syncs_per_round'])} ({count(arm['subject']['engine_syncs_per_round'])})"


def _both(figure: Callable[[Arm], str], a: Arm, b: Arm) -> str:
    return figure(a) if figure(a) == figure(b) else f"{figure(a)} / {figure(b)}"


def _counts(arm: Arm) -> tuple[Any, ...]:
    """What both tools have to agree on to the last digit."""
    names = ("phase", "draft_step", "kernels", "graph_kernels", "eager_launches", "graph_launches")
    graph = [arm["graph"][key] for key in ("launches_per_round", "graph_launches_per_round", "graph_share_kernels")]
    syncs = [(s["phase"], s["api"], s["kind"], s["per_round"]) for s in arm["syncs"]]
    return graph, syncs, arm["syncs_per_round"], [tuple(p[name] for name in names) for p in arm["phases"]]


def _both_shares(phase: str, a: Arm, b: Arm) -> str:
    shares = [[p["busy_share"] for p in arm["phases"] if p["phase"] == phase] for arm in (a, b)]
    return " / ".join(share(sum(each)) for each in shares) if shares[0] else "-"


def _differences(a: Arm, b: Arm) -> list[float]:
    left, right = ({(p["phase"], p["draft_step"]): p["busy_share"] for p in arm["phases"]} for arm in (a, b))
    return [abs(left.get(key, 0.0) - right.get(key, 0.0)) for key in left.keys() | right.keys()]


def _indented(command: str) -> str:
    return "".join(f"    {line}\n" for line in command.splitlines())


def _wrapped(block: str) -> str:
    """Running text in lines of the width that people read; tables, headings and commands as they are."""
    if block[0] in "|# ":
        return block
    return textwrap.fill(block, 125, break_on_hyphens=False, break_long_words=False) + "\n" * block.endswith("\n")


HEAD = """# What profiles of an H200 answer

Made by `profile_tables.py` from `results/profiles-h200/`. 20 rounds each at full batch, random weights of the model's
shape in bf16, nsys 2025.3.2 or torch 2.11.0's profiler (CUDA 13.0), one NVIDIA H200, 2026-11-21; each run left its
trace, page and certificate in `runs/<UTC>-<label>-<hex>/`. Times in a profile are shares, not speed: speed is in
[README.md](README.md). nsys says of each of its traces that "not all CUDA events might have been collected"; no
operation here lacks the call that launched it, and torch's profiler counts the same.
"""


if __name__ == "__main__":
    print("\n".join(map(_wrapped, page())), end="")
