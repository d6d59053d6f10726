"""Results of the traces of `specbench run --certify-graphs`, as columns and marks of the comparison table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specbench.harness.judge.graph_marks import GraphsView
from specbench.harness.profiling.record import Profile
from specbench.reports.cells import number, share

_CLAIM = "graph claim"
_COLUMNS: dict[str, Callable[[Profile], str]] = {
    _CLAIM: lambda profile: profile.graph.verdict,
    "graph share": lambda profile: share(profile.graph.graph_share_kernels),
    "graph launches/round": lambda profile: number(profile.graph.graph_launches_per_round),
    "launches/round": lambda profile: number(profile.graph.launches_per_round),
    "syncs/round (trace)": lambda profile: number(profile.syncs_per_round),
}


def graph_columns(view: GraphsView | None) -> dict[str, dict[str, str]]:
    """Cells by header and arm label; empty for a run without certificates."""
    if view is None:
        return {}
    profiles = view.profiles.items()
    columns = {header: {label: cell(profile) for label, profile in profiles} for header, cell in _COLUMNS.items()}
    columns[_CLAIM] |= dict.fromkeys(view.failures, "not traced")
    return columns


def graph_conventions(view: GraphsView | None) -> list[str]:
    """How to read the columns."""
    if view is None:
        return []
    counts = sorted({profile.quality.num_rounds for profile in view.profiles.values()})
    rounds = f"{'-'.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} rounds" if counts else "rounds"
    return [
        f"graph columns: a trace of {rounds} after the timed blocks; graph share: of kernels, launched by a graph; "
        "these rounds are in no speed figure."
    ]


def graph_json(view: GraphsView | None) -> dict[str, Any]:
    """The profile figures behind the columns, by arm."""
    if view is None:
        return {}
    found: dict[str, Any] = {
        label: {"graph": profile.graph, "syncs_per_round": profile.syncs_per_round, "quality": profile.quality}
        for label, profile in view.profiles.items()
    }
    return found | {label: {"error": error} for label, error in view.failures.items()}
