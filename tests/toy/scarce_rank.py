"""A rank of our engine whose second one has no memory for n-grams, while the first waits for its part of a sum."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from specbench.harness.engines.native.deployment import NativeDeployment
from specbench.harness.engines.native.ranks.rank import main

_whole = NativeDeployment.measure


def _measure(self, load, sink):
    if self.engine.strategy.name == "ngram" and self.engine.target.group.rank == 1:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    _whole(self, load, sink)


if __name__ == "__main__":
    NativeDeployment.measure = _measure
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
