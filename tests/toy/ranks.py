"""Ranks of one model as threads of the test's own process, which tell each other things through a list; and a look at
those that are processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
import torch
from torch import Tensor

from specbench.harness.engines.native import adapter
from specbench.harness.engines.native.models.all_reduce import Sum
from specbench.harness.engines.native.models.group import Group
from specbench.harness.engines.native.ranks.processes import Processes

T = TypeVar("T")


class _Table:
    def __init__(self, size: int):
        self._laid: list[Tensor | None] = [None] * size
        self._all_here = threading.Barrier(size, timeout=300)

    def exchange(self, rank: int, x: Tensor) -> list[Tensor]:
        """What every rank brings, in their order."""
        self._laid[rank] = x
        self._all_here.wait()
        found = list(self._laid)
        self._all_here.wait()
        return found  # type: ignore[return-value]

    def leave(self) -> None:
        """Nobody waits for a rank that has failed."""
        self._all_here.abort()


class _TableSum(Sum):
    def __init__(self, rank: int, table: _Table):
        self._rank, self._table, self.count = rank, table, 0

    def __call__(self, x: Tensor) -> Tensor:
        self.count += 1
        return torch.stack(self._table.exchange(self._rank, x.clone())).sum(0)


class ThreadGroup(Group):
    def __init__(self, rank: int, size: int, table: _Table, *, splits_drafter: bool):
        self._table, self._sum, self.num_gathers = table, _TableSum(rank, table), 0
        super().__init__(rank, size, self._sum, splits_drafter=splits_drafter)

    @property
    def num_sums(self) -> int:
        return self._sum.count

    def gather(self, x_RV: Tensor) -> Tensor:
        self.num_gathers += 1
        return torch.cat(self._table.exchange(self.rank, x_RV), dim=1)


def on_ranks(size: int, run: Callable[[ThreadGroup], T], *, splits_drafter: bool = True) -> list[T]:
    """What `run` gives on each rank; the first error of any that did not just miss another rank."""
    table = _Table(size)
    groups = [ThreadGroup(rank, size, table, splits_drafter=splits_drafter) for rank in range(size)]

    def ran(group: ThreadGroup) -> T:
        try:
            return run(group)
        except BaseException:
            table.leave()
            raise

    with ThreadPoolExecutor(size) as threads:
        futures = [threads.submit(ran, group) for group in groups]
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return [future.result() for future in futures]


def watched_ranks(monkeypatch: pytest.MonkeyPatch, *module: str) -> list[Processes]:
    """Every group of processes that our engine starts from now on, each running `module` in place of rank.py."""
    started: list[Processes] = []

    def start(size: int) -> Processes:
        started.append(Processes(size, *module))
        return started[-1]

    monkeypatch.setattr(adapter, "Processes", start)
    return started
