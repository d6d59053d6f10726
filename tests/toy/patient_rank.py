"""A rank of our engine. The first rank waits for `lost` once a request of a block has ended; otherwise it would depend
on how busy the cores are how much the ranks finish before a signal to one of them arrives."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from specbench.harness.engines.native.ranks.processes import Processes
from specbench.harness.engines.native.ranks.rank import Rank, main
from specbench.harness.engines.native.ranks.wire import Forwarder

_LOST = "lost"  # a file in the folder of the ranks
_WAITS_S = 300.0
_measure = Rank.measure


def lost(ranks: Processes) -> None:
    """A rank has had its signal: the first one goes on."""
    Path(ranks._folder.name, _LOST).touch()


def _measure_up_to_a_request(self: Rank, forwarder: Forwarder, number: int, load: object) -> None:
    told = forwarder.request

    def request(row) -> None:
        told(row)
        end_s = time.monotonic() + _WAITS_S
        while not self._meeting.with_name(_LOST).exists() and time.monotonic() < end_s:
            time.sleep(0.01)

    if self._rank == 0:
        forwarder.request = request  # type: ignore[method-assign]
    _measure(self, forwarder, number, load)


if __name__ == "__main__":
    Rank.measure = _measure_up_to_a_request  # type: ignore[method-assign]
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
