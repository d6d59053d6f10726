"""Time, launches and kernels by phase."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pandas as pd

from .attribution import Attribution
from .record import PHASES, KernelFigures, PhaseFigures
from .rounds import Rounds
from .rules import Matcher
from .trace_db import GRAPH, KERNEL

Key = tuple[str, int]  # phase, draft step (-1: none)
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


def launches_of(ops: pd.DataFrame) -> Launches:
    """The figures of some operations. A graph replay counts where its first operation is; a call counts once however
    many kernels it launched. A replay that was not traced by node has a time, but no number of kernels."""
    kernel, graph = ops["kind"] == KERNEL, ops["via_graph"]
    timed = kernel | (ops["kind"] == GRAPH)
    return Launches(
        kernels=int(kernel.sum()),
        graph_kernels=int((kernel & graph).sum()),
        eager_calls=ops["launch"][kernel & ~graph & (ops["launch"] >= 0)].nunique(),
        graph_calls=int(ops["opens_replay"].sum()),
        kernel_ns=int(ops["ns"][timed].sum()),
        graph_kernel_ns=int(ops["ns"][timed & graph].sum()),
    )


def phase_figures(a: Attribution, rounds: Rounds, matcher: Matcher) -> tuple[PhaseFigures, ...]:
    """One row for each phase with GPU work or its own ranges, in the order of a round."""
    host = host_times(a, rounds)
    groups = dict(iter(rounds.ops.groupby(["phase", "draft"], observed=True)))
    total_ns = int(rounds.ops["own_ns"].sum())
    keys = sorted({*groups, *host}, key=lambda key: (PHASES.index(key[0]), key[1]))
    nothing = rounds.ops.iloc[:0]
    return tuple(_figures(rounds, key, groups.get(key, nothing), host.get(key), total_ns, matcher) for key in keys)


def _figures(
    rounds: Rounds, key: Key, ops: pd.DataFrame, host: HostTime | None, total_ns: int, matcher: Matcher
) -> PhaseFigures:
    counts, busy, by_round = launches_of(ops), int(ops["own_ns"].sum()), ops.groupby("round")
    return PhaseFigures(
        phase=key[0],
        draft_step=draft_step(key[1]),
        host_ns=None if host is None else host.ns / rounds.num,
        gpu_busy_ns=busy / rounds.num,
        gpu_span_ns=int((by_round["t1"].max() - by_round["t0"].min()).sum()) / rounds.num,
        busy_share=busy / total_ns if total_ns else 0.0,
        kernels=counts.kernels / rounds.num,
        graph_kernels=counts.graph_kernels / rounds.num,
        eager_launches=counts.eager_calls / rounds.num,
        graph_launches=counts.graph_calls / rounds.num,
        graph_share_kernels=counts.share_kernels,
        graph_share_time=counts.share_time,
        ranges=0.0 if host is None else host.ranges / rounds.num,
        attention=sum(map(matcher.is_attention, ops["name"][ops["kind"] == KERNEL])) / rounds.num,
    )


def draft_step(number: int) -> int | None:
    """As stored in a record."""
    return None if number < 0 else number


@dataclass(slots=True)
class HostTime:
    """For the ranges of one phase: their time without nested phases, and their number; a range nested in another of the
    same phase is not counted separately."""

    ns: int = 0
    ranges: int = 0


def host_times(a: Attribution, rounds: Rounds) -> dict[Key, HostTime]:
    found: defaultdict[Key, HostTime] = defaultdict(HostTime)
    open_spans: list[tuple[Key, int]] = []  # (phase, end), each inside the one before
    analysed = {s.index for s in rounds.steps}
    for span, index, draft in zip(a.spans, a.span_round.tolist(), a.span_draft.tolist(), strict=True):
        if index not in analysed or span.rule.phase is None:
            continue
        key, length = (span.rule.phase, draft), span.t1 - span.t0
        while open_spans and open_spans[-1][1] < span.t1:
            open_spans.pop()
        outer = open_spans[-1][0] if open_spans else None
        if outer is not None:
            found[outer].ns -= length
        found[key].ns += length
        found[key].ranges += outer != key
        open_spans.append((key, span.t1))
    return dict(found)


def kernel_figures(rounds: Rounds, matcher: Matcher) -> tuple[KernelFigures, ...]:
    """Kernels and copies by phase, longest total time first; the first NUM_KERNELS, and all attention kernels."""
    groups = rounds.ops.groupby(["phase", "draft", "name"], observed=True)
    table = groups.agg(kind=("kind", "first"), calls=("ns", "size"), ns=("ns", "sum"), in_graph=("via_graph", "sum"))
    table = table.reset_index().sort_values(["ns", "name", "phase", "draft"], ascending=[False, True, True, True])
    all_ns = int(table["ns"].sum())
    rows = (
        KernelFigures(
            name=row.name,
            phase=row.phase,
            draft_step=draft_step(row.draft),
            calls=row.calls / rounds.num,
            total_ns=row.ns / rounds.num,
            mean_ns=row.ns / row.calls,
            in_graph=row.in_graph / rounds.num,
            share=row.ns / all_ns if all_ns else 0.0,
            is_attention=row.kind == KERNEL and matcher.is_attention(row.name),
        )
        for row in table.itertuples(index=False)
    )
    return tuple(row for number, row in enumerate(rows) if number < NUM_KERNELS or row.is_attention)
