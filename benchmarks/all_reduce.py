"""Times one all-reduce of bf16 rows of 4,096 inside a CUDA graph, alone and with the residual and norm that follow it.

    torchrun --nproc-per-node 2 benchmarks/all_reduce.py --output all-reduce-h200-x2.json        # 4: of four cards

`one-shot` and `two-shot` are the operations alone, on a buffer that all cards read; the others are as the engine has
them, with copies to that buffer and from it. Each result is first compared with the sum in fp32; a wrong one ends the
run. A graph holds NUM_INNER of them, one behind another. Replays of the methods alternate; a figure is the
median over the repeats of the slowest card. The raw repeats go to --output. `best`: what `--all-reduce auto` takes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / ".ns"))

from specbench.harness.engines.native.models.all_reduce import METHODS, AllReduce, best  # noqa: E402

SIZES = [1 << bit for bit in range(13, 24)]  # 8 KiB to 8 MiB
HIDDEN, EPS = 4096, 1e-5
NUM_INNER, NUM_REPEATS, NUM_WARM_UPS = 50, 21, 3
AS_USED = [method for method in METHODS if method != "auto"]
Method = Callable[[Tensor], Tensor]


def methods(num_ranks: int, device: torch.device) -> dict[str, Method]:
    """By name; each sums a tensor of bf16. The bare ones take what lies at the start of their buffer."""
    ours = {name: AllReduce(name, num_ranks, device, torch.bfloat16) for name in AS_USED}
    world = dist.group.WORLD
    assert world is not None
    weight = torch.ones(HIDDEN, dtype=torch.bfloat16, device=device)

    def bare(name: str, operation: Callable[[Tensor, str, str], Tensor]) -> Method:
        return lambda x: operation(ours[name].shared(x), "sum", world.group_name)

    def with_norm(name: str) -> Method:
        return lambda x: ours[name].add_rms_norm(x, torch.zeros_like(x), weight, EPS)

    return {
        "one-shot": bare("one-shot", torch.ops.symm_mem.one_shot_all_reduce),
        "two-shot": bare("two-shot", torch.ops.symm_mem.two_shot_all_reduce_),
        **{f"{name} engine": method for name, method in ours.items()},
        **{f"{name} norm": with_norm(name) for name in ours},
    }


def check(name: str, method: Method, size: int, device: torch.device) -> None:
    """Every rank gets the sum of what all have; the bare ones are checked by the engine's form of them."""
    own = torch.randn(size // 2, device=device).to(torch.bfloat16).view(-1, HIDDEN)
    wanted = own.float()
    dist.all_reduce(wanted)
    if name.endswith("norm"):
        wanted = torch.nn.functional.rms_norm(wanted, (HIDDEN,), eps=EPS)
    difference = (method(own.clone()).float() - wanted).abs().max().item()
    if difference > 0.1:  # bf16 values of a few units
        raise SystemExit(f"{name} at {size} bytes is wrong by {difference:.3g}")


def captured(method: Method, x: Tensor) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(NUM_WARM_UPS):
            method(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(NUM_INNER):
            method(x)
    return graph


def replay_us(graph: torch.cuda.CUDAGraph) -> float:
    """Of one all-reduce."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    dist.barrier()
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3 / NUM_INNER


def measure(size: int, of: dict[str, Method], device: torch.device) -> dict[str, list[float]]:
    """Repeats in us by method, each of the slowest rank."""
    for name, method in of.items():
        if name not in ("one-shot", "two-shot"):
            check(name, method, size, device)
    x = torch.zeros(size // 2, dtype=torch.bfloat16, device=device).view(-1, HIDDEN)  # sums in place stay what they are
    graphs = {name: captured(method, x) for name, method in of.items()}
    repeats: dict[str, list[float]] = {name: [] for name in of}
    for repeat in range(NUM_REPEATS + 1):
        for name, graph in graphs.items():
            slowest = torch.tensor(replay_us(graph), device=device)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            if repeat:  # the first replay uploads the graph
                repeats[name].append(round(slowest.item(), 1))
    return repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="raw repeats as JSON")
    args = parser.parse_args()
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group("nccl", device_id=device)
    of = methods(num_ranks, device)
    found = {}
    if rank == 0:
        print(f"{num_ranks} x {torch.cuda.get_device_name()}, torch {torch.__version__}; us\n")
        print(f"| size | {' | '.join(of)} | best |\n| ---: | {'---: | ' * len(of)}--- |")
    for size in SIZES:
        found[size] = measure(size, of, device)
        if rank == 0:
            medians = " | ".join(f"{statistics.median(repeats):.1f}" for repeats in found[size].values())
            print(f"| {size >> 10} KiB | {medians} | {best(size, num_ranks)} |", flush=True)
    if rank == 0 and args.output:
        said = {"device": torch.cuda.get_device_name(), "num_ranks": num_ranks, "torch": torch.__version__}
        args.output.write_text(json.dumps({**said, "repeats_us": found}, separators=(",", ":")) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
