"""What the model class of lm-eval keeps its outputs in, and the one that keeps nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tqdm import tqdm

from specbench.harness.engine.request import Request

from .generation import GeneratedBlock


class OutputStore(Protocol):
    """Where outputs are kept as they come, so that an interrupted evaluation goes on."""

    def known(self) -> Mapping[str, Sequence[int]]:
        """Token ids, already cut, by key."""

    def put(self, block: GeneratedBlock) -> None: ...

    def start(self, num_known: int, num_requests: int) -> None: ...

    def request_done(self, request: Request) -> None: ...


class TqdmStore:
    """Keeps nothing; draws lm-eval's kind of bar."""

    def __init__(self, quiet: bool = False):
        self._quiet = quiet
        self._bar: Any = None

    def known(self) -> Mapping[str, Sequence[int]]:
        return {}

    def put(self, block: GeneratedBlock) -> None: ...

    def start(self, num_known: int, num_requests: int) -> None:
        self._bar = tqdm(total=num_requests, desc="specbench: generate_until", disable=self._quiet)

    def request_done(self, request: Request) -> None:
        self._bar.update()
