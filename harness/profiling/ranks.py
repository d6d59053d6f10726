"""`ranks.json` next to the profile of rank 0: the same rounds as seen by each rank, from its own trace.

A rank that reaches an all-reduce early waits in its kernel for the last one, so the rank that spends the least time in
all-reduces is the one that the others wait for. All ranks use one stream, so no all-reduce is hidden behind other work.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specbench.harness.store.codec import write_document

from .record import Profile

FILE = "ranks.json"
_SUM = re.compile(r"all_?reduce|all_?gather", re.IGNORECASE)  # NCCL's kernels and symmetric memory's


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFigures:
    """Figures of a round, as in a `Profile`: `sums` and `sums_ns` are for kernels that reduce or gather over all ranks.
    None: the trace does not show it."""

    rank: int
    round_ns: float
    gpu_busy_ns: float | None
    sums: float
    sums_ns: float
    launches: float | None
    graph_launches: float | None
    syncs: float | None

    @property
    def own_ns(self) -> float:
        """Work that does not wait for another rank."""
        return (self.gpu_busy_ns or 0.0) - self.sums_ns


@dataclass(frozen=True, kw_only=True, slots=True)
class RankProfiles:
    """`skew_ns`: own work of the slowest rank beyond that of the fastest."""

    ranks: tuple[RankFigures, ...]
    slowest: int
    skew_ns: float

    def lines(self) -> list[str]:
        shown = [
            f"rank {r.rank}: round {r.round_ns / 1e3:.1f} us, own work {r.own_ns / 1e3:.1f} us, {r.sums:.0f} sums and "
            f"gathers {r.sums_ns / 1e3:.1f} us, {_shown(r.launches)} launches, {_shown(r.graph_launches)} of graphs, "
            f"{_shown(r.syncs)} synchronisations"
            for r in self.ranks
        ]
        return [*shown, f"rank {self.slowest} is the slowest, by {self.skew_ns / 1e3:.1f} us of own work"]

    def write(self, folder: Path) -> None:
        write_document(folder / FILE, self)


def rank_profiles(profiles: Sequence[Profile]) -> RankProfiles:
    """Of the ranks in their order."""
    ranks = tuple(_figures(number, profile) for number, profile in enumerate(profiles))
    own_ns = [rank.own_ns for rank in ranks]
    return RankProfiles(ranks=ranks, slowest=own_ns.index(max(own_ns)), skew_ns=max(own_ns) - min(own_ns))


def _figures(rank: int, profile: Profile) -> RankFigures:
    sums = [kernel for kernel in profile.kernels if _SUM.search(kernel.name)]
    return RankFigures(
        rank=rank,
        round_ns=profile.round_ns,
        gpu_busy_ns=profile.gpu_busy_ns,
        sums=sum(kernel.calls for kernel in sums),
        sums_ns=sum(kernel.total_ns for kernel in sums),
        launches=profile.graph.launches_per_round,
        graph_launches=profile.graph.graph_launches_per_round,
        syncs=profile.syncs_per_round,
    )


def rank_trace(path: Path, rank: int) -> Path:
    """The path of a rank's trace; rank 0's is the path itself."""
    return path if rank == 0 else path.with_name(f"rank{rank}-{path.name}")


def _shown(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}"
