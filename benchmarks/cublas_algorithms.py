"""Times a model's matrix products by torch's choice of a cuBLAS algorithm, and by the others with the same bits.

    PYTHONPATH=.ns python3 benchmarks/cublas_algorithms.py llama-3.1-8b --rows 320,640 --output algorithms.json

What the engine does before it captures a step of so many rows (kernels/cublas_choice.py), on random bf16 weights:
medians of five interleaved repeats over a cold L2 cache, in microseconds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from products_gpu import Product, products

from specbench.kernels.cublas_choice import best_of, timed
from specbench.kernels.cublas_lt import problem_of


def measure(shape: str, product: Product, num_rows: int) -> dict:
    weight = torch.randn(product.outputs, product.inputs, dtype=torch.bfloat16, device="cuda")
    found = timed(problem_of(num_rows, weight), weight)
    torchs, *others = (1e3 * ms for _, ms in found)
    best = best_of(found)
    share = None if best is None else best.share
    return dict(shape=shape, product=product.name, rows=num_rows, torch_us=torchs, others_us=others, taken_share=share)


def row(found: dict) -> str:
    """Of a table."""
    torchs, others, share = found["torch_us"], found["others_us"], found["taken_share"]
    taken = "torch's" if share is None else f"another: {share:.3f}"
    fastest = f"{min(others):.1f}" if others else ""
    cells = found["shape"], found["product"], str(found["rows"]), f"{torchs:.1f}", fastest, str(len(others)), taken
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="+", metavar="SHAPE[@GPUS]")
    parser.add_argument("--rows", default="320,640", metavar="N,...")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    print("| shape | product | rows | torch, us | fastest other, us | others | taken |")
    print("| --- | --- | ---: | ---: | ---: | ---: | --- |")
    found = []
    with torch.inference_mode():
        for shape in args.shapes:
            for num_rows in map(int, args.rows.split(",")):
                for product in products(shape):
                    found.append(measure(shape, product, num_rows))
                    print(row(found[-1]), flush=True)
    if args.output:
        args.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
