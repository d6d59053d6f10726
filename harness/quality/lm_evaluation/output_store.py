"""What the model class of lm-eval keeps its outputs in, and the one that keeps nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tqdm import tqdm

from specbench.harness.engines.base import RowSink
from specbench.harness.store.rows import PhaseRow, RequestRow, StepRow


class OutputStore(Protocol):
    """Where outputs are kept as they come, so that an interrupted evaluation goes on."""

    def known(self) -> Mapping[str, RequestRow]:
        """By key, outputs already cut."""

    def start(self, num_known: int, num_requests: int) -> None: ...

    def begin(self, num_requests: int) -> RowSink:
        """For one batch, the only one that is open; `put` closes it."""

    def put(self) -> None: ...


class TqdmStore:
    """Keeps nothing; draws lm-eval's kind of bar."""

    cancelled = False

    def __init__(self, quiet: bool = False):
        self._quiet = quiet
        self._bar: tqdm | None = None

    def known(self) -> Mapping[str, RequestRow]:
        return {}

    def start(self, num_known: int, num_requests: int) -> None:
        self._bar = tqdm(total=num_requests, desc="specbench: generate_until", disable=self._quiet)

    def begin(self, num_requests: int) -> RowSink:
        return self

    def put(self) -> None: ...

    def request(self, row: RequestRow) -> None:
        assert self._bar is not None  # drawn by `start`
        self._bar.update()

    def add_steps(self, rows: Sequence[StepRow]) -> None: ...

    def add_phases(self, rows: Sequence[PhaseRow]) -> None: ...
