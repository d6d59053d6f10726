"""Counts the experts that the layers of a model read, on the device, in the kernels that plan their products."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


class ExpertReads:
    """`counts`: of each layer with experts, int64 [2]: experts that had rows, and passes."""

    def __init__(self, counts: Sequence[Tensor]):
        self._counts = list(counts)
        self._left_out_2 = torch.zeros_like(self._counts[0]) if self._counts else None

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Launches inside are not counted. The host does not wait."""
        if self._left_out_2 is None:
            yield
            return
        before_2 = self._sum()
        yield
        self._left_out_2 += self._sum() - before_2

    def total(self) -> tuple[int, int]:
        """Experts that had rows, over all passes of each layer so far, and the number of these passes. Waits for the
        device."""
        if self._left_out_2 is None:
            return 0, 0
        num_read, num_passes = (self._sum() - self._left_out_2).tolist()
        return num_read, num_passes

    def _sum(self) -> Tensor:
        return torch.stack(self._counts).sum(0)
