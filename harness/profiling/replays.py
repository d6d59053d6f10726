"""The graphs that a round replays, in order: what launches show if no range names a phase."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from .attribution import Attribution
from .record import Replays
from .rounds import Rounds
from .rules import Matcher
from .trace_db import GRAPH, KERNEL

_One = tuple[int, int, int]  # of a replay: its first node (-1: not recorded), kernels, kernels of attention


def replays(a: Attribution, rounds: Rounds, matcher: Matcher) -> tuple[Replays, ...]:
    """The replays of the rounds with the most common sequence; neighbours that replay the same graph are one row."""
    ops = rounds.ops[rounds.ops["via_graph"] & (rounds.ops["kind"] != GRAPH)]
    if ops.empty:
        return ()
    attends = {name: matcher.is_attention(name) for name in ops["name"].unique()}
    ops = ops.assign(kernel=ops["kind"] == KERNEL)
    ops["attention"] = ops["kernel"] & ops["name"].map(attends).astype(bool)
    whole = ops.groupby("launch").agg(
        number=("round", "first"),
        node=("node", "min"),
        kernels=("kernel", "sum"),
        attention=("attention", "sum"),
        busy_ns=("own_ns", "sum"),
    )
    began = a.launches["t0"].to_numpy()[whole.index]
    by_round: dict[int, list[tuple[int, _One, int]]] = {}
    for t0, (number, node, kernels, attention, busy_ns) in zip(began.tolist(), whole.to_numpy().tolist(), strict=True):
        by_round.setdefault(number, []).append((t0, (node, kernels, attention), busy_ns))
    ordered = {number: sorted(by_round[number]) for number in sorted(by_round)}
    sequences = Counter(tuple(one for _, one, _ in found) for found in ordered.values())
    ((usual, num_rounds),) = sequences.most_common(1)
    alike = [found for found in ordered.values() if tuple(one for _, one, _ in found) == usual]
    mean_ns = [sum(found[place][2] for found in alike) / num_rounds for place in range(len(usual))]
    return tuple(
        Replays(
            first=places[0] + 1,
            num=len(places),
            kernels=usual[places[0]][1],
            attention=usual[places[0]][2],
            gpu_busy_ns=sum(mean_ns[place] for place in places) / len(places),
            rounds=num_rounds / rounds.num,
        )
        for places in (list(group) for _, group in groupby(range(len(usual)), key=lambda place: usual[place]))
    )
