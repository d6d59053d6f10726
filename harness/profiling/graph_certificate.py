"""Whether the parts of a round that a row claims to run as graphs did, by what launched their kernels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .attribution import Attribution
from .phase_figures import launches_of
from .record import PHASES, GraphCertificate, Subject
from .rounds import Rounds
from .trace_db import GRAPH, KERNEL

HOLDS, VOID, NO_CLAIM, CANNOT_TELL = "holds", "void", "no claim", "cannot tell"

_PART_OF = {"advance": "target", "verify": "target", "accept": "target", "compact": "target"}
_WHOLE = ("full", "one")
_NUM_NAMES = 3  # of kernels, in a reason


def graph_certificate(
    a: Attribution, rounds: Rounds, names: NDArray[np.object_], subject: Subject | None, refusal: str | None
) -> GraphCertificate:
    """`refusal`: why nothing can be concluded by phase, if so.

    full, one: every kernel of the part was launched by a graph, in every round. piecewise: some were, in every round.
    """
    at = np.flatnonzero(rounds.holds(a.round))
    counts = launches_of(a, at)
    verdict, reasons = _verdict(a, at, rounds, names, subject, refusal)
    return GraphCertificate(
        verdict=verdict,
        reasons=tuple(reasons),
        launches_per_round=(counts.eager_calls + counts.graph_calls) / rounds.num,
        graph_launches_per_round=counts.graph_calls / rounds.num,
        graph_share_kernels=counts.share_kernels,
        graph_share_time=counts.share_time,
    )


def _verdict(
    a: Attribution,
    at: NDArray[np.int64],
    rounds: Rounds,
    names: NDArray[np.object_],
    subject: Subject | None,
    refusal: str | None,
) -> tuple[str, list[str]]:
    claims = {part: mode for part, mode in (subject.claimed_parts if subject else {}).items() if mode != "none"}
    if not claims:
        return NO_CLAIM, []
    if (a.ops["kind"][at] == GRAPH).any():
        return CANNOT_TELL, ["replays were not traced by node; record with --cuda-graph-trace=node"]
    if refusal:
        return CANNOT_TELL, [refusal]
    part = _parts(a, at)
    reasons: list[str] = []
    for name, mode in claims.items():
        mine = at[(part == name) & (a.ops["kind"][at] == KERNEL)]
        if name == "target" or len(mine) or _has_part(name, subject):
            reasons += _against(a, mine, rounds, names, name, mode)
    return (VOID, reasons) if reasons else (HOLDS, [])


def _has_part(name: str, subject: Subject | None) -> bool:
    """Whether rounds of the subject have this part of the drafter."""
    return subject is not None and subject.num_drafts > {"first": 0, "later": 1}.get(name, 0)


def _parts(a: Attribution, at: NDArray[np.int64]) -> NDArray[np.object_]:
    """The part of each operation, by its phase."""
    found = np.full(len(at), "", dtype=object)
    for phase, part in _PART_OF.items():
        found[a.phase[at] == PHASES.index(phase)] = part
    is_draft = a.phase[at] == PHASES.index("draft")
    found[is_draft & (a.draft[at] == 0)] = "first"
    found[is_draft & (a.draft[at] > 0)] = "later"
    return found


def _against(
    a: Attribution, at: NDArray[np.int64], rounds: Rounds, names: NDArray[np.object_], part: str, mode: str
) -> list[str]:
    """What speaks against the claim that `part` ran as `mode`; `at`: its kernels in the analysed rounds."""
    missing = rounds.num - len(np.unique(a.round[at]))
    if missing:
        return [f"{part} (claimed {mode}): no kernels of it in {missing} of {rounds.num} rounds"]
    graph = a.via_graph[at]
    if mode in _WHOLE:
        return list(_eager_phases(a, at[~graph], at, rounds, names, mode))
    without = rounds.num - len(np.unique(a.round[at[graph]]))
    return [f"{part} (claimed {mode}): no graph launch in {without} of {rounds.num} rounds"] if without else []


def _eager_phases(
    a: Attribution,
    eager: NDArray[np.int64],
    at: NDArray[np.int64],
    rounds: Rounds,
    names: NDArray[np.object_],
    mode: str,
) -> Iterator[str]:
    """One reason for each phase and draft step that has kernels which no graph launched."""
    for phase, draft in sorted(set(zip(a.phase[eager].tolist(), a.draft[eager].tolist(), strict=True))):
        mine = eager[(a.phase[eager] == phase) & (a.draft[eager] == draft)]
        of = ((a.phase[at] == phase) & (a.draft[at] == draft)).sum()
        where = PHASES[phase] + (f" step {draft}" if draft >= 0 else "")
        kernels = sorted({names[name] for name in a.ops["name"][mine].tolist()})
        shown = ", ".join(name[:60] for name in kernels[:_NUM_NAMES]) + (", ..." if len(kernels) > _NUM_NAMES else "")
        yield (
            f"{where} (claimed {mode}): {len(mine)} of {of} kernels launched by the host, in "
            f"{len(np.unique(a.round[mine]))} of {rounds.num} rounds: {shown}"
        )
