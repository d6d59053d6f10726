"""Marks that the traces of `run --certify-graphs` add to the run's tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specbench.harness.metrics.doubts import VOID
from specbench.harness.profiling.profile_file import FAILURE, FILE, read_profile
from specbench.harness.profiling.record import Profile
from specbench.harness.store.codec import read_object


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphsView:
    """By arm: the result of its trace, or why there is none."""

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


def graph_marks(view: GraphsView | None) -> dict[str, str]:
    """By arm: the marks that must accompany every figure of its row."""
    if view is None:
        return {}
    void = {
        label: f"{VOID}: {profile.graph.reasons[0] if profile.graph.reasons else 'see its profile'}"
        for label, profile in view.profiles.items()
        if profile.graph.verdict == "void"
    }
    return void | {label: f"graphs not traced: {error}" for label, error in view.failures.items()}
