"""Times our attention backend on a CUDA device, by replays of a CUDA graph over many layers' caches.

    python benchmarks/attention_h200.py                          # the table
    python benchmarks/attention_h200.py --sweep --cases 8b:64:4096:5
    python benchmarks/attention_h200.py --page-size 16 --max-kv 8192

"chosen" is what engines run; where that is the kernel in CUDA C++, "triton" stands beside it. Each shape is first
compared with the torch backend; a wrong result ends the run. Every layer has caches of its own, enough of them that a
replay finds none in L2. FlashAttention-3 is timed beside it where a module `fa3_paged` can be imported.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / ".ns"))

from attention_case import ALL_CASES, Case, Layers, make_layers  # noqa: E402

from specbench.kernels.attention.base import AttentionBackend  # noqa: E402
from specbench.kernels.attention.launch import Launch, LaunchShape, choose_launch  # noqa: E402
from specbench.kernels.attention.torch_attention import TorchAttention  # noqa: E402
from specbench.kernels.attention.triton_attention import TritonAttention  # noqa: E402
from specbench.kernels.attention.wgmma_attention import Form, wgmma_form  # noqa: E402

MIN_SAMPLE_MS, NUM_SAMPLES = 10.0, 7
TOLERANCE = 2e-2  # bf16 outputs of order 1

Forward = Callable[[Tensor, Tensor, Tensor], Tensor]


def forward_of(backend: AttentionBackend, layers: Layers) -> Forward:
    return lambda q_THD, k_cache, v_cache: backend.forward(q_THD, k_cache, v_cache, layers.meta, layers.scale)


def forward_of_fa3(fa3: ModuleType, layers: Layers) -> Forward:
    """FlashAttention-3 with its schedule computed outside the graph, as engines run it."""
    meta = layers.meta
    _, page_size, num_kv_heads, head_dim = layers.k_caches[0].shape
    lengths = (meta.kv_len_B.shape[0], meta.max_q, meta.max_kv)
    heads = (layers.q_THD.shape[1], num_kv_heads, head_dim)
    schedule = fa3.schedule(*lengths, *heads, meta.kv_len_B, meta.cu_q_B1, page_size)

    def forward(q_THD: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        out_THD, _ = fa3.fa3_paged(
            q_THD,
            k_cache,
            v_cache,
            meta.cu_q_B1,
            meta.kv_len_B,
            meta.block_table_BP,
            meta.max_q,
            meta.max_kv,
            metadata=schedule,
        )
        return out_THD

    return forward


def check(forward: Forward, layers: Layers) -> None:
    """Raises AssertionError where a result differs from the torch backend's."""
    inputs = (layers.q_THD, layers.k_caches[-1], layers.v_caches[-1])
    expected_THD = forward_of(TorchAttention(), layers)(*inputs)
    torch.testing.assert_close(forward(*inputs), expected_THD, atol=TOLERANCE, rtol=0)


def launch_us(forward: Forward, layers: Layers) -> float:
    """Median time of one layer's attention inside a graph over all layers."""

    def all_layers() -> None:
        for k_cache, v_cache in zip(layers.k_caches, layers.v_caches, strict=True):
            forward(layers.q_THD, k_cache, v_cache)

    all_layers()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        all_layers()
    first_ms = [replay_ms(graph, 1) for _ in range(3)]
    num_replays = max(1, int(MIN_SAMPLE_MS / min(first_ms)) + 1)
    sample_ms = [replay_ms(graph, num_replays) for _ in range(NUM_SAMPLES)]
    return statistics.median(sample_ms) * 1e3 / (num_replays * len(layers.k_caches))


def replay_ms(graph: torch.cuda.CUDAGraph, num_replays: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(num_replays):
        graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def launch_shape_of(layers: Layers) -> LaunchShape:
    """The shape the backend hands to its choice of launch, caught from a call."""
    seen: list[LaunchShape] = []

    def catch(shape: LaunchShape) -> Launch:
        seen.append(shape)
        return choose_launch(shape)

    forward_of(TritonAttention(catch), layers)(layers.q_THD, layers.k_caches[0], layers.v_caches[0])
    return seen[0]


def report(case: Case, name: str, us: float, launch: Launch | Form | None = None) -> None:
    gb_per_s = case.total_bytes / us / 1e3
    print(f"{case!s:20} {name:8} {us:9.2f} us  {gb_per_s:7.0f} GB/s  {launch or ''}", flush=True)


def fixed_launch(launch: Launch, shape: LaunchShape) -> Launch:
    return launch


def sweep(case: Case, layers: Layers, args: argparse.Namespace) -> None:
    """Times every combination of the asked values and prints the best; refused ones (shared memory) are counted."""
    from triton.runtime.errors import OutOfResources

    chosen = choose_launch(launch_shape_of(layers))
    around = {1, chosen.num_splits, max(1, chosen.num_splits // 2), 2 * chosen.num_splits}
    timed: list[tuple[float, Launch]] = []
    num_refused = 0
    for block_m, block_n, num_warps, num_stages, num_splits in itertools.product(
        args.block_m or [chosen.block_m], args.block_n, args.warps, args.stages, args.splits or sorted(around)
    ):
        launch = Launch(
            block_m=block_m, block_n=block_n, num_splits=num_splits, num_warps=num_warps, num_stages=num_stages
        )
        forward = forward_of(TritonAttention(partial(fixed_launch, launch)), layers)
        try:
            check(forward, layers)
        except OutOfResources:
            num_refused += 1
            continue
        timed.append((launch_us(forward, layers), launch))
    for us, launch in sorted(timed, key=lambda pair: pair[0])[: args.top]:
        report(case, "sweep", us, launch)
    print(f"{case!s:20} {len(timed)} launches timed, {num_refused} refused for lack of resources", flush=True)


def run_case(case: Case, fa3: ModuleType | None, args: argparse.Namespace) -> None:
    layers = make_layers(case, args.page_size, args.max_kv)
    shape = launch_shape_of(layers)
    in_cuda, in_triton = wgmma_form(shape, layers.q_THD, layers.k_caches[0], layers.v_caches[0]), choose_launch(shape)
    backends = {"chosen": (TritonAttention(), in_cuda or in_triton)}
    if in_cuda:
        backends["triton"] = TritonAttention(choose_launch), in_triton
    for name, (backend, launch) in backends.items():
        forward = forward_of(backend, layers)
        check(forward, layers)
        report(case, name, launch_us(forward, layers), launch)
    if fa3 is not None:
        fa3_forward = forward_of_fa3(fa3, layers)
        check(fa3_forward, layers)
        report(case, "fa3", launch_us(fa3_forward, layers))
    if args.sweep:
        sweep(case, layers, args)


def parse_args() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", type=Case.parse, default=ALL_CASES, metavar="MODEL:B:L:Q")
    parser.add_argument("--page-size", type=int, default=64)
    parser.add_argument("--max-kv", type=int, help="bound of the lengths the launch is built for (default: the length)")
    parser.add_argument("--sweep", action="store_true", help="also time other launches, and print the best")
    parser.add_argument("--splits", type=numbers, help="default: 1, and half, the whole and twice the chosen number")
    parser.add_argument("--warps", type=numbers, default=[2, 4])
    parser.add_argument("--stages", type=numbers, default=[2, 3, 4])
    parser.add_argument("--block-m", type=numbers, help="default: the chosen number of packed rows")
    parser.add_argument("--block-n", type=numbers, default=[32, 64, 128])
    parser.add_argument("--top", type=int, default=5, help="launches of a sweep to print")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("needs a CUDA device; none is visible")
    torch.manual_seed(0)
    try:
        fa3 = importlib.import_module("fa3_paged")
    except (ImportError, OSError) as error:
        print(f"FlashAttention-3 is not timed: {error}")
        fa3 = None
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, page size {args.page_size}")
    for case in args.cases:
        run_case(case, fa3, args)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
