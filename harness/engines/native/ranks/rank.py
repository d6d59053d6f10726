"""One rank: python -m specbench.harness.engines.native.ranks.rank RANK SIZE MEETING

It takes orders from standard input and answers on standard output until the input ends; what anything prints goes to
standard error. The orders are those of the engine's interface, so that each rank runs the same blocks by itself.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from specbench.harness.engines.base import Model
from specbench.harness.engines.native.adapter import NativeEngine
from specbench.harness.engines.native.arms import ResolvedArm
from specbench.harness.engines.native.deployment import NativeDeployment
from specbench.harness.engines.native.models.group import join
from specbench.harness.engines.native.ranks.wire import Done, Failed, Forwarder, Order
from specbench.harness.engines.traced import Traced, Tracer
from specbench.harness.engines.warmup import WarmUp
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.spec.devices import pick_device, pick_dtype
from specbench.harness.store.arm_record import EngineFacts
from specbench.harness.store.rows import CounterRow


class Rank:
    """Orders by name; each returns what rank 0 answers."""

    def __init__(self, rank: int, size: int, meeting: Path):
        self._rank, self._size, self._meeting = rank, size, meeting
        self._deployments: dict[int, NativeDeployment] = {}

    def open(self, forwarder: Forwarder, config: RunConfig) -> tuple[Model, list[ResolvedArm]]:
        device = pick_device(config.device)
        if device.type == "cuda":
            torch.cuda.set_device(self._rank)
        else:
            torch.set_num_threads(max(1, torch.get_num_threads() // self._size))
        group = join(
            self._rank,
            self._size,
            self._meeting,
            device,
            pick_dtype(config.dtype, device),
            config.all_reduce,
            splits_drafter=config.draft_tensor_parallel_size != 1,
        )
        self._engine = NativeEngine(group)
        return self._engine.open(config, forwarder)

    def deploy(self, forwarder: Forwarder, number: int, arm: ResolvedArm, config: RunConfig) -> tuple[EngineFacts, int]:
        made = self._engine.deploy(arm, config, Path(os.devnull))
        assert isinstance(made, NativeDeployment), "a rank starts no ranks"
        self._deployments[number] = made
        return made.described, made.batch_size

    def drop(self, forwarder: Forwarder, number: int) -> None:
        self._deployments.pop(number, None)

    def warm_up(self, forwarder: Forwarder, number: int, load: Any, warmup: WarmUp) -> WarmUp:
        self._deployments[number].warm_up(load, warmup)
        return warmup

    def measure(self, forwarder: Forwarder, number: int, load: Any) -> None:
        group = self._engine.target.model.group
        before = group.num_agreements
        self._deployments[number].measure(load, forwarder)
        forwarder.add_counters([CounterRow("ranks.agreements", group.num_agreements - before)])

    def generate(self, forwarder: Forwarder, number: int, requests: Any) -> dict[int, str | None]:
        return self._deployments[number].generate(requests, forwarder)

    def ask(self, forwarder: Forwarder, number: int, name: str, args: tuple[Any, ...]) -> Any:
        """A method of the deployment that needs no sink."""
        return getattr(self._deployments[number], name)(*args)

    def trace(
        self, forwarder: Forwarder, number: int, load: Any, num_rounds: int, tracer_of: Callable[[int], Tracer]
    ) -> Traced:
        return self._deployments[number].trace(load, num_rounds, tracer_of(self._rank))

    def look(self, forwarder: Forwarder, number: int, read: Callable[[NativeDeployment], Any]) -> Any:
        return read(self._deployments[number])


def serve(rank: Rank, is_first: bool, orders: Connection, answers: Connection) -> None:
    while True:
        try:
            order: Order = orders.recv()
        except EOFError:
            return
        forwarder = Forwarder(answers.send if is_first else lambda message: None)
        try:
            value = getattr(rank, order.name)(forwarder, *order.args)
        except Exception as error:  # reported to the sender of the order, which decides what it means
            traceback.print_exc()
            answers.send(Failed(_kind(error), str(error) or type(error).__name__, traceback.format_exc()))
        else:
            answers.send(Done(value if is_first else None, forwarder.way))


def _kind(error: Exception) -> str:
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return "memory"
    return "input" if isinstance(error, ValueError) else "engine"


def main(rank: int, size: int, meeting: Path) -> None:
    orders, answers = Connection(os.dup(0), writable=False), Connection(os.dup(1), readable=False)
    os.dup2(2, 1)
    serve(Rank(rank, size, meeting), rank == 0, orders, answers)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
