"""How many experts the layers of a model read, counted on the device by the kernels that plan their products."""

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
        """What is launched inside does not count. The host does not wait for it."""
        if self._left_out_2 is None:
            yield
            return
        before_2 = self._sum()
        yield
        self._left_out_2 += self._sum() - before_2

    def total(self) -> tuple[int, int]:
        """Experts that had rows, of each layer's pass until now, and such passes. Waits for the device."""
        if self._left_out_2 is None:
            return 0, 0
        num_read, num_passes = (self._sum() - self._left_out_2).tolist()
        return num_read, num_passes

    def _sum(self) -> Tensor:
        return torch.stack(self._counts).sum(0)
