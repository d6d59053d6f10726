"""Makes the tables of profiles.md anew, each behind its line `<!-- name -->`: `PYTHONPATH=.ns python
benchmarks/profile_tables.py`. They come from what profile_keep.py kept, and from the traces of vLLM's own rounds
(vllm_trace.py) that the tests keep."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from stored_rounds import vllm_round

from specbench.harness.profiling.idle import CAUSES
from specbench.reports.cells import share
from specbench.reports.profile.cells import MICROSECONDS, count, phase_name
from specbench.reports.profile.labels import arm_titles

HERE = Path(__file__).parent
VLLM_TRACES = {
    "first model runner, nsys": "runner1.sqlite.xz",
    "first model runner, torch's profiler": "runner1.json.gz",
    "second model runner, nsys": "runner2.sqlite.xz",
}
UNDER_OUR_RANGES = {
    "vLLM 0.26, first model runner": ("vllm-runner1-nsys", "vllm-runner1-torch"),
    "vLLM 0.26, second model runner": ("vllm-runner2-nsys", "vllm-runner2-torch"),
    "the same, one more wait planted": ("vllm-runner2-sync-nsys",),
    "the same, `graph=piecewise`": ("vllm-runner2-piecewise-nsys",),
    "SGLang 0.5.16, chain, K = 4": ("sglang-chain-nsys", "sglang-chain-torch"),
    "SGLang 0.5.16, tree (2, 4, 4)": ("sglang-tree-nsys", "sglang-tree-torch"),
}

Arm = dict[str, Any]  # a profile.json, cut down, with the host's own figures of its rounds
Row = TypeVar("Row")
Columns = Mapping[str, Callable[[Row], str]]

LAUNCHES: Columns[Arm] = {
    "launches": lambda a: count(a["graph"]["launches_per_round"]),
    "of graphs": lambda a: count(a["graph"]["graph_launches_per_round"]),
    "kernels from a graph": lambda a: share(a["graph"]["graph_share_kernels"]),
}
SYNCS = "synchronisations (engine's own)"
IDLE = "idle verify to draft, µs"


def tables() -> Iterator[tuple[str, str]]:
    """(name, table)."""
    runs = {path.stem: json.loads(path.read_text()) for path in (HERE / "results" / "profiles-h200").glob("*.json")}
    nsys, torch = runs["five-nsys"], runs["five-torch"]
    pairs = {n: (a, b) for n, a, b in zip(_names(nsys), nsys["arms"], torch["arms"], strict=True)}
    yield "two tools", _table("arm", {name: _of_both(figure) for name, figure in TWO_TOOLS.items()}, pairs)
    yield "shares", _table("arm", SHARES, pairs)
    yield "slow-down", _table("arm", SLOW_DOWN, pairs)
    waits = runs["pr20078"]
    yield "waits", _table("arm", WAITS, dict(zip(_names(waits), waits["arms"], strict=True)))
    arms = sorted(runs["pr34880"]["arms"], key=lambda arm: -arm["graph"]["launches_per_round"])
    names = ("eager", "piecewise drafter", "full_and_piecewise")
    yield "drafter graphs", _table("drafter", DRAFTER, dict(zip(names, arms, strict=True)))
    one = next(pair for pair in pairs.values() if pair[0]["subject"]["strategy"] == "naive-eagle")
    phases = zip(*(arm["phases"] for arm in one), strict=True)
    rows = {phase_name(p["phase"], p["draft_step"]): (p, q) for p, q in phases if p["phase"] != "host"}
    yield "one graph", _table("phase", ONE_GRAPH, rows)
    ranged = {name: tuple(runs[file]["arms"][0] for file in files) for name, files in UNDER_OUR_RANGES.items()}
    yield "passes", _table("engine", PASSES, ranged)
    yield "vllm", _table("vLLM 0.26", OF_VLLM, {name: asdict(vllm_round(file)) for name, file in VLLM_TRACES.items()})


def _table(first: str, columns: Columns[Row], rows: Mapping[str, Row]) -> str:
    lines = [[first, *columns], ["---", *["---:"] * len(columns)]]
    lines += [[name, *(figure(row) for figure in columns.values())] for name, row in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _names(run: Arm) -> tuple[str, ...]:
    return arm_titles([arm["subject"]["arm"] for arm in run["arms"]]).titles


# -- columns: of an arm, or of the same arm or phase under nsys and under torch's profiler -----------------------------

Pair = tuple[Arm, ...]


def _of_both(figure: Callable[[Arm], str]) -> Callable[[Pair], str]:
    """One figure where all tools give the same, else nsys / torch."""
    return lambda pair: " / ".join(dict.fromkeys(map(figure, pair)))


def _syncs(arm: Arm) -> str:
    return f"{count(arm['syncs_per_round'])} ({count(arm['subject']['engine_syncs_per_round'])})"


def _idle(arm: Arm) -> str:
    return MICROSECONDS.text(arm["idle"]["verify_to_draft_idle_ns"])


def _by_cause(cause: str) -> Callable[[Arm], str]:
    return lambda arm: MICROSECONDS.text(arm["idle"]["verify_to_draft_by_cause_ns"][cause])


def _drafts(arm: Arm) -> list[Arm]:
    return [p for p in arm["phases"] if p["phase"] == "draft"]


def _busy_shares(phase: str) -> Callable[[Pair], str]:
    def cell(pair: Pair) -> str:
        shares = [[p["busy_share"] for p in arm["phases"] if p["phase"] == phase] for arm in pair]
        return " / ".join(share(sum(each)) for each in shares) if shares[0] else "-"

    return cell


def _points(pair: Pair) -> str:
    """The largest difference of shares over all phases and drafter passes."""
    left, right = ({(p["phase"], p["draft_step"]): p["busy_share"] for p in arm["phases"]} for arm in pair)
    return f"{100 * max(abs(left.get(key, 0.0) - right.get(key, 0.0)) for key in left | right):.2f}"


def _same_counts(pair: Pair) -> str:
    """Whether launches, graph share and synchronisations agree to the last digit in every phase and drafter pass."""
    names = ("phase", "draft_step", "kernels", "graph_kernels", "eager_launches", "graph_launches")
    a, b = (
        (
            [arm["graph"][key] for key in ("launches_per_round", "graph_launches_per_round", "graph_share_kernels")],
            [(s["phase"], s["api"], s["kind"], s["per_round"]) for s in arm["syncs"]],
            [[p[name] for name in names] for p in arm["phases"]],
        )
        for arm in pair
    )
    return "yes" if a == b else "NO"


def _rounds_ns(pair: Pair) -> list[float]:
    """Unprofiled, under nsys, under torch's profiler."""
    return [pair[0]["slow_down"]["unprofiled_round_ns"], *(arm["host_round_ns"] for arm in pair)]


def _from_graph(step: int) -> Callable[[Arm], str]:
    def cell(arm: Arm) -> str:
        phase = _drafts(arm)[step]
        return f"{share(phase['graph_share_kernels'])} of {count(phase['kernels'])}"

    return cell


def _launched(phase: str, step: int | None = None) -> Callable[[Arm], str]:
    """Eager launches + graphs."""

    def cell(arm: Arm) -> str:
        found = [p for p in arm["phases"] if (p["phase"], p["draft_step"]) == (phase, step)]
        return " ".join(f"{count(p['eager_launches'])} + {count(p['graph_launches'])}" for p in found) or "-"

    return cell


TWO_TOOLS: Columns[Arm] = {
    **LAUNCHES,
    "certificate": lambda a: a["graph"]["verdict"],
    SYNCS: _syncs,
    IDLE: _idle,
    "attributed": lambda a: share(a["quality"]["attributed_share"]),
}
SHARES: Columns[Pair] = {
    **{phase: _busy_shares(phase) for phase in ("advance", "verify", "accept", "compact", "draft")},
    "points": _points,
    "same counts": _same_counts,
}
SLOW_DOWN: Columns[Pair] = {
    **{
        f"{name}, µs": lambda pair, i=i: MICROSECONDS.text(_rounds_ns(pair)[i])
        for i, name in enumerate(("unprofiled", "nsys", "torch"))
    },
    **{
        name: lambda pair, i=i: f"{_rounds_ns(pair)[i] / _rounds_ns(pair)[0]:.2f}x"
        for i, name in ((1, "nsys"), (2, "torch"))
    },
}
WAITS: Columns[Arm] = {
    SYNCS: _syncs,
    "kinds": lambda a: (
        "; ".join(f"{count(s['per_round'])} {s['kind']}" for s in a["syncs"] if s["kind"] != "late") or "none"
    ),
    "launches": LAUNCHES["launches"],
    IDLE: _idle,
    **{cause.replace("-", " "): _by_cause(cause) for cause in CAUSES},
    "idle a round, µs": lambda a: MICROSECONDS.text(a["idle"]["total_ns"]),
    "GPU busy": lambda a: share(a["gpu_busy_share"]),
}
DRAFTER: Columns[Arm] = {
    **{f"draft step {i}: kernels from a graph": _from_graph(i) for i in range(3)},
    "launches by step, eager + graph": lambda a: ", ".join(
        f"{count(p['eager_launches'])} + {count(p['graph_launches'])}" for p in _drafts(a)
    ),
    "launches a round": LAUNCHES["launches"],
    **{name: WAITS[name] for name in ("idle a round, µs", "GPU busy")},
    "certificate": TWO_TOOLS["certificate"],
}
ONE_GRAPH: Columns[Pair] = {
    "kernels": _of_both(lambda p: count(p["kernels"])),
    "GPU busy, µs (nsys / torch)": lambda pair: " / ".join(MICROSECONDS.text(p["gpu_busy_ns"]) for p in pair),
    "of GPU busy": lambda pair: " / ".join(share(p["busy_share"]) for p in pair),
    "from the graph": _of_both(lambda p: share(p["graph_share_kernels"])),
}
PASSES: Columns[Pair] = {
    name: _of_both(figure)
    for name, figure in {
        "launches": LAUNCHES["launches"],
        "of graphs": LAUNCHES["of graphs"],
        "waits of the host": lambda a: count(a["syncs_per_round"]),
        "verify": _launched("verify"),
        "between passes": _launched("draft"),
        **{f"pass {n}": _launched("draft", n) for n in range(4)},
        "profiler": lambda a: f"{a['slow_down']['profiled_round_ns'] / a['slow_down']['unprofiled_round_ns']:.2f}x",
        "with a phase": TWO_TOOLS["attributed"],
    }.items()
}
OF_VLLM: Columns[Arm] = {
    **LAUNCHES,
    "synchronisations": lambda a: count(a["syncs_per_round"]),
    "GPU busy, µs": lambda a: MICROSECONDS.text(a["gpu_busy_ns"]),
    "GPU busy": WAITS["GPU busy"],
    IDLE: _idle,
    "drafter: kernels from a graph": lambda a: share(_drafts(a)[0]["graph_share_kernels"]) if _drafts(a) else "-",
    "with a phase": TWO_TOOLS["attributed"],
}


def main() -> None:
    page = HERE / "profiles.md"
    text = page.read_text(encoding="utf-8")
    for name, table in tables():
        text, done = re.subn(rf"(<!-- {name} -->\n\n)(\|.*\n)*", rf"\1{table}\n", text)
        assert done == 1, name
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
