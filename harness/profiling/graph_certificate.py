"""Whether the parts of a round that a row claims to run as graphs did, by what launched their kernels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .attribution import Attribution
from .phase_figures import launches_of
from .record import PHASES, GraphCertificate, Subject
from .rounds import Rounds, unplaced
from .trace_db import GRAPH, KERNEL

HOLDS, VOID, NO_CLAIM, CANNOT_TELL = "holds", "void", "no claim", "cannot tell"

_PART_OF = {"advance": "target", "verify": "target", "accept": "target", "compact": "target"}
_WHOLE = ("full", "one")
_NUM_NAMES = 3  # of kernels, in a reason


def graph_certificate(
    a: Attribution, rounds: Rounds, names: NDArray[np.object_], subject: Subject | None, refusal: str | None
) -> GraphCertificate:
    """`refusal`: why nothing can be concluded by phase, if so.

    full, one: every kernel of the part was launched by a graph, in every round. piecewise: some of the target, and of
    each drafter pass, were, in every round. Neither is concluded from, nor against, what the trace does not show.
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
    eager: list[str] = []
    absent: list[str] = []
    for name, mode in claims.items():
        mine = at[(part == name) & (a.ops["kind"][at] == KERNEL)]
        if name == "target" or len(mine) or _has_part(name, subject):
            absent += _absent(a, mine, rounds, name, mode)
            if mode in _WHOLE:
                eager += _eager_phases(a, mine[~a.via_graph[mine]], mine, rounds, names, mode)
    gaps = list(_gaps(a, rounds))
    if eager or (absent and not gaps):
        return VOID, [*absent, *eager]
    if gaps and (absent or set(claims.values()) & set(_WHOLE)):
        return CANNOT_TELL, [*absent, *gaps]
    return HOLDS, []


def _gaps(a: Attribution, rounds: Rounds) -> Iterator[str]:
    """Kernels that may be of any part: a claim about all of a part's kernels cannot hold beside them."""
    loose = unplaced(a, rounds) & (a.ops["kind"] == KERNEL)
    if loose.any():
        by_host = int((loose & ~a.via_graph).sum())
        yield f"{int(loose.sum())} kernels of the rounds lie in no phase, {by_host} of them not launched by a graph"
    if rounds.num_lost:
        yield f"{rounds.num_lost} launch calls of the rounds left no work in the trace"


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


def _absent(a: Attribution, at: NDArray[np.int64], rounds: Rounds, part: str, mode: str) -> Iterator[str]:
    """What the claim that `part` ran as `mode` lacks; `at`: its kernels in the analysed rounds."""
    missing = rounds.num - len(np.unique(a.round[at]))
    if missing:
        yield f"{part} (claimed {mode}): no kernels of it in {missing} of {rounds.num} rounds"
    elif mode not in _WHOLE:
        for draft in np.unique(a.draft[at]).tolist():
            mine = at[(a.draft[at] == draft) & a.via_graph[at]]
            without = rounds.num - len(np.unique(a.round[mine]))
            where = part + (f" step {draft}" if part == "later" else "")
            if without:
                yield f"{where} (claimed {mode}): no graph launch in {without} of {rounds.num} rounds"


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
