"""Time, launches and kernels by phase."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .attribution import NO_PHASE, Attribution
from .record import PHASES, KernelFigures, PhaseFigures
from .rounds import Rounds
from .rules import Matcher
from .trace_db import GRAPH, KERNEL

OTHER = PHASES.index("other")
NUM_KERNELS = 60  # kept by total time; attention ones beyond them too


@dataclass(frozen=True, slots=True)
class Launches:
    """Kernels and the calls that launched them, of some operations. Shares are None without kernels."""

    kernels: int
    graph_kernels: int
    eager_calls: int
    graph_calls: int
    kernel_ns: int
    graph_kernel_ns: int

    @property
    def share_kernels(self) -> float | None:
        return self.graph_kernels / self.kernels if self.kernels else None

    @property
    def share_time(self) -> float | None:
        return self.graph_kernel_ns / self.kernel_ns if self.kernel_ns else None


def launches_of(a: Attribution, at: NDArray[np.int64]) -> Launches:
    """Of the operations at positions `at`. A graph replay counts where its first operation is; a call counts once
    however many kernels it left. A replay that was not traced by node has time, but no number of kernels."""
    ops, graph = a.ops[at], a.via_graph[at]
    kernel, whole_graph = ops["kind"] == KERNEL, ops["kind"] == GRAPH
    busy = ops["t1"] - ops["t0"]
    timed = kernel | whole_graph
    return Launches(
        kernels=int(kernel.sum()),
        graph_kernels=int((kernel & graph).sum()),
        eager_calls=len(np.unique(ops["launch"][kernel & ~graph & (ops["launch"] >= 0)])),
        graph_calls=int(a.opens_replay[at].sum()),
        kernel_ns=int(busy[timed].sum()),
        graph_kernel_ns=int(busy[timed & graph].sum()),
    )


def groups(a: Attribution, rounds: Rounds) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """(phase, draft step, positions of its operations) in the order of a round; work outside any phase as `other`."""
    at = np.flatnonzero(rounds.holds(a.round))
    phase = np.where(a.phase[at] == NO_PHASE, OTHER, a.phase[at])
    key = phase * 10_000 + a.draft[at] + 1
    for value in np.unique(key).tolist():
        yield value // 10_000, value % 10_000 - 1, at[key == value]


def phase_figures(a: Attribution, rounds: Rounds) -> tuple[PhaseFigures, ...]:
    """One row for each phase with GPU work or ranges of its own."""
    host = _host_ns(a, rounds)
    found = {(phase, draft): at for phase, draft, at in groups(a, rounds)}
    total = sum(int(a.own_ns[at].sum()) for at in found.values())
    empty = np.empty(0, dtype=np.int64)
    return tuple(
        _figures(a, rounds.num, key, found.get(key, empty), host.get(key), total) for key in sorted({*found, *host})
    )


def _figures(
    a: Attribution, num: int, key: tuple[int, int], at: NDArray[np.int64], host_ns: int | None, total_ns: int
) -> PhaseFigures:
    counts, busy = launches_of(a, at), int(a.own_ns[at].sum())
    return PhaseFigures(
        phase=PHASES[key[0]],
        draft_step=None if key[1] < 0 else key[1],
        host_ns=None if host_ns is None else host_ns / num,
        gpu_busy_ns=busy / num,
        gpu_span_ns=_span_ns(a, at) / num,
        busy_share=busy / total_ns if total_ns else 0.0,
        kernels=counts.kernels / num,
        graph_kernels=counts.graph_kernels / num,
        eager_launches=counts.eager_calls / num,
        graph_launches=counts.graph_calls / num,
        graph_share_kernels=counts.share_kernels,
        graph_share_time=counts.share_time,
    )


def _span_ns(a: Attribution, at: NDArray[np.int64]) -> int:
    """Last end less first start, summed over rounds."""
    if not len(at):
        return 0
    _, inverse = np.unique(a.round[at], return_inverse=True)
    first = np.full(inverse.max() + 1, np.iinfo(np.int64).max)
    last = np.full(inverse.max() + 1, np.iinfo(np.int64).min)
    np.minimum.at(first, inverse, a.ops["t0"][at])
    np.maximum.at(last, inverse, a.ops["t1"][at])
    return int((last - first).sum())


def _host_ns(a: Attribution, rounds: Rounds) -> dict[tuple[int, int], int]:
    """Length of the ranges of each phase, summed; a range inside another of the same phase counts once."""
    found: dict[tuple[int, int], int] = {}
    until: dict[tuple[int, int], int] = {}  # by phase: where its last range ended
    held = rounds.holds(a.span_round).tolist()
    for span, is_held, draft in zip(a.spans, held, a.span_draft.tolist(), strict=True):
        if not is_held or span.rule.phase is None:
            continue
        key = PHASES.index(span.rule.phase), draft
        begin = max(span.t0, until.get(key, span.t0))
        if span.t1 >= begin:
            found[key] = found.get(key, 0) + span.t1 - begin
            until[key] = span.t1
    return found


def kernel_figures(
    a: Attribution, rounds: Rounds, names: NDArray[np.object_], matcher: Matcher
) -> tuple[KernelFigures, ...]:
    """Kernels and copies by phase, the most time first; the first NUM_KERNELS, and all attention kernels."""
    rows: list[KernelFigures] = []
    all_ns = int(a.busy_ns[rounds.holds(a.round)].sum())
    graph = a.via_graph
    for phase, draft, at in groups(a, rounds):
        for name in np.unique(a.ops["name"][at]).tolist():
            mine = at[a.ops["name"][at] == name]
            total_ns = int(a.busy_ns[mine].sum())
            rows.append(
                KernelFigures(
                    name=names[name],
                    phase=PHASES[phase],
                    draft_step=None if draft < 0 else draft,
                    calls=len(mine) / rounds.num,
                    total_ns=total_ns / rounds.num,
                    mean_ns=total_ns / len(mine),
                    in_graph=int(graph[mine].sum()) / rounds.num,
                    share=total_ns / all_ns if all_ns else 0.0,
                    is_attention=bool(a.ops["kind"][mine[0]] == KERNEL) and matcher.is_attention(names[name]),
                )
            )
    rows.sort(key=lambda row: (-row.total_ns, row.name, PHASES.index(row.phase), row.draft_step or 0))
    return tuple(row for number, row in enumerate(rows) if number < NUM_KERNELS or row.is_attention)
