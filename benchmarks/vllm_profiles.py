"""The section on vLLM's own traces in profiles.md, from the traces that the tests keep (vllm_trace.py made them)."""

from __future__ import annotations

import gzip
import lzma
import tempfile
from collections.abc import Iterator
from pathlib import Path

from specbench.harness.profiling.analysis import analyse_trace
from specbench.harness.profiling.record import Profile
from specbench.harness.profiling.rules import PhaseRules
from specbench.reports.profile.cells import count, microseconds, share

TRACES = Path(__file__).parents[1] / "tests" / "harness" / "profiling" / "golden" / "vllm"
FILES = {
    "first model runner, nsys": "runner1.sqlite.xz",
    "first model runner, torch's profiler": "runner1.json.gz",
    "second model runner, nsys": "runner2.sqlite.xz",
}
HEADERS = (
    *("vLLM 0.26", "launches", "of graphs", "kernels from a graph", "synchronisations", "GPU busy, µs"),
    *("GPU busy", "idle verify to draft, µs", "drafter: kernels from a graph", "with a phase"),
)


def section() -> tuple[str, list[list[str]], str]:
    """Introduction, rows under HEADERS, and what they say."""
    profiles = {name: _analysed(TRACES / file) for name, file in FILES.items()}
    first = profiles["first model runner, nsys"]
    attention = [k.mean_ns for k in first.kernels if k.is_attention and k.phase == "verify"]
    drafter = count(sum(p.kernels for p in first.phases if p.phase == "draft"))
    said = (
        "Both tools count the same. The first runner runs the target's verify pass as one graph, but its drafter "
        f"piecewise: of {drafter} kernels of the four drafter passes about a third comes from graphs, the rest is "
        "launched one by one, and the GPU waits for that. The second runner, the default of 0.26 for this model, "
        "launches one graph for the target and four for the drafter, attention included, but names no phases: the "
        "import gives figures of whole rounds and refuses those by phase. Attention in verify: FlashAttention-3 ("
        f"{microseconds(attention[0])} µs, and {microseconds(attention[1])} µs to combine its splits). Under a "
        "profiler, with one request: the host's share is inflated.\n"
    )
    return INTRO, list(_rows(profiles)), said


def _analysed(packed: Path) -> Profile:
    data = packed.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / packed.stem
        path.write_bytes(lzma.decompress(data) if packed.suffix == ".xz" else gzip.decompress(data))
        return analyse_trace(path, rules=PhaseRules.shipped())


def _rows(profiles: dict[str, Profile]) -> Iterator[list[str]]:
    for name, p in profiles.items():
        drafter = [f for f in p.phases if f.phase == "draft"]
        yield [
            name,
            count(p.graph.launches_per_round),
            count(p.graph.graph_launches_per_round),
            share(p.graph.graph_share_kernels),
            count(p.syncs_per_round),
            microseconds(p.gpu_busy_ns),
            share(p.gpu_busy_share),
            microseconds(p.idle.verify_to_draft_idle_ns),
            share(drafter[0].graph_share_kernels) if drafter else "-",
            share(p.quality.attributed_share),
        ]


INTRO = """    nsys profile -t cuda,nvtx -s none --cpuctxsw=none --cuda-graph-trace=node \\
        --capture-range=cudaProfilerApi --capture-range-end=stop -o runner1 --export=sqlite \\
        python benchmarks/vllm_trace.py 1 cuda
    specbench profile import runner1.sqlite

and the same with `2 cuda` and `1 torch`: EAGLE-3, K = 4, acceptance forced to 2.5 tokens a round, one request,
SmolLM2's shape, 18 to 20 decode rounds.
"""
