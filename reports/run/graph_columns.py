"""Results of the traces of `specbench run --certify-graphs`, as columns and marks of the comparison table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specbench.harness.profiling.record import FAILURE, FILE, Profile, read_profile
from specbench.harness.store.codec import read_object
from specbench.reports.cells import VOID

HEADERS = ("graph claim", "graph share", "graph launches/round", "launches/round", "syncs/round (trace)")


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphsView:
    """By arm: what its trace said, or why there is none."""

    profiles: Mapping[str, Profile]
    failures: Mapping[str, str]


def view_graphs(directory: Path) -> GraphsView | None:
    """The certificates of a run; None for a run without any. ValueError for a damaged one."""
    profiles, failures = {}, {}
    for folder in sorted(directory.glob("profile/*/")):
        if (folder / FILE).is_file():
            profile = read_profile(folder / FILE)
            if profile.subject is not None:
                profiles[profile.subject.arm] = profile
        elif (folder / FAILURE).is_file():
            record = read_object(folder / FAILURE)
            failures[str(record.get("arm"))] = str(record.get("error"))
    return GraphsView(profiles=profiles, failures=failures) if profiles or failures else None


def graph_columns(view: GraphsView | None) -> dict[str, dict[str, str]]:
    """Cells by header and arm label; empty for a run without certificates."""
    if view is None:
        return {}
    rows = {label: dict(zip(HEADERS, _cells(profile), strict=True)) for label, profile in view.profiles.items()}
    columns = {header: {label: row[header] for label, row in rows.items()} for header in HEADERS}
    columns[HEADERS[0]] |= dict.fromkeys(view.failures, "not traced")
    return columns


def graph_marks(view: GraphsView | None) -> dict[str, str]:
    """By arm: what no figure of its row may hide."""
    if view is None:
        return {}
    void = {
        label: f"{VOID}: {profile.graph.reasons[0] if profile.graph.reasons else 'see its profile'}"
        for label, profile in view.profiles.items()
        if profile.graph.verdict == "void"
    }
    return void | {label: f"graphs not traced: {error}" for label, error in view.failures.items()}


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
    """The figures behind the columns, by arm."""
    if view is None:
        return {}
    found: dict[str, Any] = {
        label: {"graph": profile.graph, "syncs_per_round": profile.syncs_per_round, "quality": profile.quality}
        for label, profile in view.profiles.items()
    }
    return found | {label: {"error": error} for label, error in view.failures.items()}


def _cells(profile: Profile) -> tuple[str, ...]:
    graph = profile.graph
    share = "-" if graph.graph_share_kernels is None else f"{graph.graph_share_kernels:.1%}"
    figures = (graph.graph_launches_per_round, graph.launches_per_round, profile.syncs_per_round)
    return graph.verdict, share, *(f"{value:.4g}" for value in figures)
