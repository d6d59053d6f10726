"""One forward pass of a target in a CUDA graph, with and without what makes it fast for few rows, on a GPU.

    PYTHONPATH=.ns python3 benchmarks/forward_gpu.py llama-3.1-8b --rows 1,5,40,64x1,32x5 --output forward.json

Random bf16 weights; one request with 200 keys, or 64 of them with one row each (64x1). Matrix products by cuBLAS, by
Triton or as models/linear.py chooses (CUDA C++ where it fits, then Triton); kernels launched in order or early
(programmatic dependent launch); norms by kernels of their own or by the products around them. Medians of interleaved
repeats of 20 replays, in microseconds, with the spread of the repeats, next to the time that reading the weights takes
at `--read-gbs`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from specbench.harness.engines.native.models import linear
from specbench.harness.engines.native.models.forward import AttentionPart, ForwardBatch, KVCache
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.loader import dummy_target
from specbench.kernels import triton_support
from specbench.kernels.attention.base import AttentionMetadata
from specbench.kernels.attention.triton_attention import TritonAttention

_NUM_KEYS, _ROOM, _PAGE = 200, 120, 16  # keys of a request, and how many more it may have
_REPLAYS = 20
CHOSEN = "bulk_tiles", "wgmma_tiles", "skinny_blocks"
VARIANTS = {  # kernels of few rows, early launch, norms done by products
    "cuBLAS": ((), False, False),
    "cuBLAS, early launch": ((), True, False),
    "Triton, early launch": (("skinny_blocks",), True, False),
    "norms of their own": (CHOSEN, True, False),
    "chosen": (CHOSEN, True, True),
}


class Pass:
    """A target's forward pass over `num_rows` rows of each request, with logits and argmax."""

    def __init__(self, target: LlamaModel, num_requests: int, num_rows: int, num_keys: int = _NUM_KEYS):
        c, device, max_keys = target.config, target.device, num_keys + _ROOM
        pages = -(-max_keys // _PAGE)
        shape = num_requests * pages + 1, _PAGE, c.num_kv_heads, c.head_dim
        numbers = [torch.randn(2, *shape, dtype=target.dtype, device=device) for _ in target.layers]
        self.target = target
        self.caches = [KVCache(k, v) for k, v in numbers]
        table_RP = torch.arange(1, num_requests * pages + 1, dtype=torch.int32, device=device).view(-1, pages)
        every = num_requests * num_rows
        meta = AttentionMetadata.uniform(
            torch.arange(0, every + 1, num_rows, dtype=torch.int32, device=device),
            torch.full((num_requests,), num_keys, dtype=torch.int32, device=device),
            table_RP,
            q=num_rows,
            max_kv=max_keys,
        )
        position_Q = torch.arange(num_keys - num_rows, num_keys, device=device)
        slot_RQ = table_RP[:, position_Q // _PAGE].long() * _PAGE + position_Q % _PAGE
        ids_T = torch.arange(10, 10 + every, device=device)
        part = AttentionPart(0, every, meta)
        self.batch = ForwardBatch(ids_T, position_Q.repeat(num_requests), slot_RQ.flatten(), (part,))
        self.attention = target.attention(TritonAttention(), max_keys)

    def __call__(self) -> torch.Tensor:
        hidden = self.target.forward(self.batch, self.attention, self.caches)
        return self.target.logits(hidden).argmax(dim=-1)


def captured(run: Callable[[], object]) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    graph.replay()
    return graph


def microseconds(graph: torch.cuda.CUDAGraph) -> float:
    times = []
    for _ in range(_REPLAYS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


@contextmanager
def variant(kernels: tuple[str, ...], early: bool, defers: bool = True) -> Iterator[None]:
    names = *CHOSEN, "_takes_lt"
    before, launches_early = [getattr(linear, name) for name in names], triton_support._launches_early
    add_norm = linear.Linear.add_norm
    for name in {*CHOSEN} - {*kernels}:
        setattr(linear, name, lambda *operands, **options: None)
    if not defers:
        setattr(linear.Linear, "add_norm", lambda self, x, norm: None)  # noqa: B010
    if not kernels:
        linear._takes_lt = lambda x: False
    if not early:
        triton_support._launches_early = lambda device: False
    try:
        yield
    finally:
        for name, function in zip(names, before, strict=True):
            setattr(linear, name, function)
        triton_support._launches_early = launches_early
        setattr(linear.Linear, "add_norm", add_norm)  # noqa: B010


def weight_bytes(target: LlamaModel) -> int:
    """Of all matrix products of one pass in bf16."""
    products = [target.lm_head]
    for layer in target.layers:
        products += [layer.qkv, layer.o, layer.mlp.gate_up, layer.mlp.down]
    return sum(product.out_features * product.in_features * 2 for product in products)


def measure(target: LlamaModel, rows: str, repeats: int) -> dict[str, list[float]]:
    """Microseconds of each repeat by variant. SystemExit where their logits do not agree."""
    requests, _, each = rows.rpartition("x")
    run, graphs, tokens = Pass(target, int(requests or 1), int(each)), {}, {}
    for name, how in VARIANTS.items():
        with variant(*how):
            tokens[name] = run.target.logits(target.forward(run.batch, run.attention, run.caches)).float()
            graphs[name] = captured(run)
    scale = float(tokens["cuBLAS"].abs().max())
    for name, logits in tokens.items():
        error = float((logits - tokens["cuBLAS"]).abs().max()) / scale
        if not error < 0.05:
            raise SystemExit(f"{name}, {rows} rows: logits differ by {error:.3f} of the largest; nothing is timed")
    times: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(repeats):
        for name, graph in graphs.items():
            times[name].append(microseconds(graph))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape")
    parser.add_argument("--rows", default="1,5,40", help="of one request, or REQUESTSxROWS; default: 1,5,40")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--read-gbs", type=float, default=4570, help="read bandwidth, GB/s; 4570: measured on an H200")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    target = dummy_target(args.shape, torch.bfloat16, torch.device("cuda"))
    limit = weight_bytes(target) / args.read_gbs / 1e3
    results = []
    with torch.inference_mode():
        for rows in args.rows.split(","):
            times = measure(target, rows, args.repeats)
            results.append(dict(shape=args.shape, rows=rows, limit_us=limit, us=times))
            for name, us in times.items():
                median = statistics.median(us)
                spread = (max(us) - min(us)) / median
                figures = f"{median:7.0f} us, spread {spread:.1%}, {limit / median:.1%} of limit"
                print(f"{args.shape} rows {rows:5} {name:20} {figures}", flush=True)
    if args.output:
        device = torch.cuda.get_device_name()
        args.output.write_text(json.dumps(dict(device=device, results=results), indent=1) + "\n")


if __name__ == "__main__":
    main()
