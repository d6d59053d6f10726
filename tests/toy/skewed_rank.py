"""A rank of our engine that mixes up the columns of its sums, on all ranks alike: for tests of what must see it."""

from __future__ import annotations

import sys
from pathlib import Path

from specbench.harness.engines.native.models.all_reduce import AllReduce
from specbench.harness.engines.native.ranks.rank import main

_right = AllReduce.__call__


def _skewed(self, x):
    return _right(self, x).roll(1, dims=-1)


if __name__ == "__main__":
    AllReduce.__call__ = _skewed
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
