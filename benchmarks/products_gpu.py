"""Times the matrix products of few rows as the engine multiplies them, and by cuBLAS, on a GPU.

    PYTHONPATH=.ns python3 benchmarks/products_gpu.py llama-3.1-8b llama-3.1-8b@4 smollm2-135m --rows 1,5,40

@4: a rank's part of four. "chosen" is what models/linear.py does; "Triton" the same without CUDA C++; cuBLAS is torch's
default, with SiLU as a kernel of its own. A CUDA graph holds a chain of launches over copies of the weights that do not
fit into the L2 cache together, so each reads its weights from memory; kernels start early, as in the engine. Neighbours
of a chain overlap more than the products of a pass do: a launch of few blocks looks better here than forward_gpu.py
finds it.

A figure is the median over interleaved repeats, in microseconds of one product, next to the time that reading its
weights takes at `--read-gbs`. A launch is compared with cuBLAS first; a wrong one ends the run. Launches are written as
outputs x inputs x stages x warps of a block (kernels/skinny_gemm.py).
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from forward_gpu import captured, variant
from torch import Tensor

from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.shapes import SHAPES
from specbench.kernels.silu_and_mul import silu_and_mul
from specbench.kernels.skinny_gemm import Blocks, choose_blocks, skinny_gated, skinny_linear

COLD_BYTES = 400 << 20  # of all copies, several times an L2 cache
NUM_REPEATS, WARPS = 5, 4
CUBLAS, TRITON, CHOSEN = "cuBLAS", "Triton", "chosen"
SHARED_BYTES = 227 << 10
CUDA_FIRST = "bulk_tiles", "wgmma_tiles", "skinny_blocks"


@dataclass(frozen=True, slots=True)
class Product:
    name: str
    outputs: int  # gate and up counted
    inputs: int
    is_gated: bool = False

    @property
    def num_bytes(self) -> int:
        return 2 * self.outputs * self.inputs

    def run(self, x: Tensor, weight: Tensor, launch: Blocks | str) -> Tensor:
        if isinstance(launch, Blocks):
            return skinny_gated(x, weight, launch) if self.is_gated else skinny_linear(x, weight, None, launch)
        if launch == CUBLAS:
            y = F.linear(x, weight)
            return silu_and_mul(y) if self.is_gated else y
        with variant(("skinny_blocks",) if launch == TRITON else CUDA_FIRST, early=True):
            return Linear(weight).gated(x) if self.is_gated else Linear(weight)(x)


def products(words: str) -> list[Product]:
    name, _, num_ranks = words.partition("@")
    whole = SHAPES[name].config
    c = whole.split(int(num_ranks or 1))
    q = c.num_q_heads * c.head_dim
    return [
        Product("qkv", q + 2 * c.num_kv_heads * c.head_dim, c.hidden_size),
        Product("o", c.hidden_size, q),
        Product("gate_up", 2 * c.intermediate_size, c.hidden_size, is_gated=True),
        Product("down", c.hidden_size, c.intermediate_size),
        Product("lm_head", whole.vocab_size // int(num_ranks or 1), c.hidden_size),
    ]


def launches(product: Product, num_rows: int) -> Iterator[Blocks]:
    """All that fit into shared memory, leave no input over, and are neither too few for the card nor too many."""
    padded = max(16, 1 << (num_rows - 1).bit_length())
    matrices = 2 if product.is_gated else 1
    chosen = choose_blocks(num_rows, product.outputs, product.inputs, product.is_gated)
    for outputs, inputs, stages in itertools.product((16, 32, 64, 128), (64, 128, 256, 512), (3, 4, 6)):
        num_blocks = product.outputs // matrices / outputs
        fits = stages * inputs * (outputs * matrices + padded) * 2 <= SHARED_BYTES
        if fits and product.inputs % inputs == 0 and min(66, product.outputs / 64) <= num_blocks <= 1056:
            yield Blocks(outputs, inputs, stages, WARPS, chosen.prefetch if chosen else 0)


def tried(product: Product, num_rows: int, is_sweep: bool) -> dict[str, Blocks | str]:
    found: dict[str, Blocks | str] = {CUBLAS: CUBLAS, TRITON: TRITON, CHOSEN: CHOSEN}
    for blocks in launches(product, num_rows) if is_sweep else ():
        found[f"{blocks.outputs}x{blocks.inputs}x{blocks.num_stages}x{blocks.num_warps}"] = blocks
    return found


def operands(product: Product, num_rows: int) -> tuple[Tensor, list[Tensor]]:
    copies = max(2, -(-COLD_BYTES // product.num_bytes))
    x = torch.randn(num_rows, product.inputs, device="cuda").to(torch.bfloat16)
    weight = torch.randn(product.outputs, product.inputs, device="cuda").to(torch.bfloat16) / product.inputs**0.5
    return x, [weight.clone() for _ in range(copies)]


def check(name: str, y: Tensor, expected: Tensor) -> None:
    error = float((y.float() - expected.float()).abs().max() / expected.float().abs().max())
    if not error < 0.02:
        raise SystemExit(f"{name} differs from cuBLAS by {error:.3f} of the largest; nothing is timed")


def chain(product: Product, x: Tensor, weights: list[Tensor], launch: Blocks | str) -> Callable[[], None]:
    def run() -> None:
        for weight in weights:
            product.run(x, weight, launch)

    return run


def measure(product: Product, num_rows: int, is_sweep: bool) -> dict[str, list[float]]:
    """Microseconds of one product by launch, each repeat."""
    x, weights = operands(product, num_rows)
    expected = product.run(x, weights[0], CUBLAS)
    graphs = {}
    for name, launch in tried(product, num_rows, is_sweep).items():
        check(f"{product.name} {name}", product.run(x, weights[0], launch), expected)
        graphs[name] = captured(chain(product, x, weights, launch))
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(NUM_REPEATS):
        for name, graph in graphs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end) * 1e3 / len(weights))
    return times


def compile_part(cases: list[tuple[Product, int]], is_sweep: bool, part: int, of: int) -> None:
    """Launches each of its share once: Triton keeps what it compiles."""
    all_launches = [(p, rows, launch) for p, rows in cases for launch in tried(p, rows, is_sweep).values()]
    for product, num_rows, launch in all_launches[part::of]:
        x = torch.zeros(num_rows, product.inputs, dtype=torch.bfloat16, device="cuda")
        product.run(x, x.new_zeros(product.outputs, product.inputs), launch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="+", metavar="SHAPE[@RANKS]")
    parser.add_argument("--rows", default="1,5,40")
    parser.add_argument("--read-gbs", type=float, default=4570, help="read bandwidth, GB/s; 4570: measured on an H200")
    parser.add_argument("--sweep", action="store_true", help="time all launches that fit, not only what is chosen")
    parser.add_argument("--workers", type=int, default=8, help="processes that compile first")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help="every repeat as JSON")
    args = parser.parse_args()
    all_rows = [int(rows) for rows in args.rows.split(",")]
    cases = [(shape, p, rows) for shape in args.shapes for p in products(shape) for rows in all_rows]
    with torch.inference_mode():
        if args.part is not None:
            compile_part([case[1:] for case in cases], args.sweep, args.part, args.workers)
            return
        own = [sys.executable, *sys.argv, "--part"]
        for worker in [subprocess.Popen([*own, str(part)]) for part in range(args.workers)]:
            if worker.wait():
                raise SystemExit("a launch does not compile")
        found = []
        print("| shape | product | rows | limit, us | cuBLAS, us | Triton, us | chosen, us | fastest | us |")
        print("| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | ---: |")
        for shape, product, num_rows in cases:
            times = measure(product, num_rows, args.sweep)
            us = {name: statistics.median(repeats) for name, repeats in times.items()}
            fastest = min(us, key=us.__getitem__)
            limit = product.num_bytes / args.read_gbs / 1e3
            print(
                f"| {shape} | {product.name} | {num_rows} | {limit:.1f} | {us[CUBLAS]:.1f} | {us[TRITON]:.1f} | "
                f"{us[CHOSEN]:.1f} | {fastest} | {us[fastest]:.1f} |",
                flush=True,
            )
            found.append(dict(shape=shape, product=product.name, rows=num_rows, limit_us=limit, us=times))
            if args.output:
                args.output.write_text(json.dumps(dict(device=torch.cuda.get_device_name(), products=found)) + "\n")


if __name__ == "__main__":
    main()
