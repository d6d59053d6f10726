"""Checks that the parts of a round that a row claims to run as graphs did so, by what launched their kernels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .attribution import Attribution
from .phase_figures import launches_of
from .record import GraphCertificate, Subject
from .rounds import Rounds, unplaced
from .trace_db import GRAPH, KERNEL

HOLDS, VOID, NO_CLAIM, CANNOT_TELL = "holds", "void", "no claim", "cannot tell"

CLAIMED = ("verify", "drafter", "first", "later")  # on a command line, of another engine
_MODES = ("full", "piecewise")
_PHASES = {"target": ("advance", "verify", "accept", "compact"), "verify": ("verify",)}  # every other part drafts
_WHOLE = ("full", "one")
_NUM_NAMES = 3  # names of kernels in a reason


def parse_claims(texts: Sequence[str]) -> dict[str, str]:
    """Modes by part from `PART=MODE`. verify: the target's forward; drafter: all its passes; first, later: if ranges
    distinguish them. ValueError for others, and for a part that is named twice."""
    claims: dict[str, str] = {}
    for text in texts:
        part, _, mode = text.partition("=")
        if part not in CLAIMED or mode not in _MODES:
            allowed = f"PART=MODE, PART of {', '.join(CLAIMED)}, MODE of {', '.join(_MODES)}"
            raise ValueError(f"claim: {text!r} is not allowed; allowed: {allowed}")
        if part in claims:
            raise ValueError(f"claim: {text!r} names {part} again; allowed: one mode per part")
        claims[part] = mode
    return claims


def graph_certificate(
    a: Attribution, rounds: Rounds, subject: Subject | None, claims: Mapping[str, str], refusal: str | None
) -> GraphCertificate:
    """`claims`: modes by part, if no subject has its own. `refusal`: why figures by phase allow no conclusion, if they
    do not.

    full, one: every kernel of the part was launched by a graph, in every round. piecewise: some of the target's
    kernels, and some of each drafter pass, were, in every round. What the trace does not show counts neither for nor
    against.
    """
    counts = launches_of(rounds.ops)
    claimed, num_drafts = (claims, math.inf) if subject is None else (subject.claimed_parts, subject.num_drafts)
    verdict, reasons = _verdict(a, rounds, claimed, num_drafts, refusal)
    return GraphCertificate(
        verdict=verdict,
        reasons=tuple(reasons),
        launches_per_round=(counts.eager_calls + counts.graph_calls) / rounds.num,
        graph_launches_per_round=counts.graph_calls / rounds.num,
        graph_share_kernels=counts.share_kernels,
        graph_share_time=counts.share_time,
    )


def _verdict(
    a: Attribution, rounds: Rounds, claims: Mapping[str, str], num_drafts: float, refusal: str | None
) -> tuple[str, list[str]]:
    claims = {part: mode for part, mode in claims.items() if mode != "none"}
    if not claims:
        return NO_CLAIM, []
    if (rounds.ops["kind"] == GRAPH).any():
        return CANNOT_TELL, ["replays were not traced by node; record with --cuda-graph-trace=node"]
    if refusal:
        return CANNOT_TELL, [refusal]
    kernels = rounds.ops[rounds.ops["kind"] == KERNEL]
    eager: list[str] = []
    absent: list[str] = []
    for name, mode in claims.items():
        of_part = _of(kernels, name, num_drafts)
        if len(of_part) or num_drafts > {"first": 0, "later": 1}.get(name, -1):
            absent += _absent(of_part, rounds.num, name, mode)
            if mode in _WHOLE:
                eager += _eager_phases(of_part, rounds.num, mode)
    gaps = list(_gaps(a, rounds))
    if eager or (absent and not gaps):
        return VOID, [*absent, *eager]
    if gaps and (absent or set(claims.values()) & set(_WHOLE)):
        return CANNOT_TELL, [*absent, *gaps]
    return HOLDS, []


def _of(kernels: pd.DataFrame, part: str, num_drafts: float) -> pd.DataFrame:
    """The phases of a part of the round. If ranges distinguish all passes, a drafter consists of its passes, without
    the work between them."""
    if part in _PHASES:
        return kernels[kernels["phase"].isin(_PHASES[part])]
    drafting = kernels[kernels["phase"] == "draft"]
    if part == "drafter":
        passes = drafting[drafting["draft"] >= 0]
        are_all = passes["draft"].nunique() > 1 or (num_drafts == 1 and len(passes))
        return passes if are_all else drafting
    return drafting[drafting["draft"] == 0] if part == "first" else drafting[drafting["draft"] > 0]


def _gaps(a: Attribution, rounds: Rounds) -> Iterator[str]:
    """Kernels that may belong to any part: a claim about all kernels of a part cannot hold with them."""
    loose = unplaced(a, rounds)
    loose = loose[(loose["kind"] == KERNEL) & ~_launched_between_steps(a, loose)]
    if len(loose):
        by_host = int((~loose["via_graph"]).sum())
        yield f"{len(loose)} kernels in the rounds have no phase, {by_host} of them not launched by a graph"
    if rounds.num_lost:
        yield f"{rounds.num_lost} launch calls in the rounds have no GPU work in the trace"


def _launched_between_steps(a: Attribution, ops: pd.DataFrame) -> NDArray[np.bool_]:
    """Kernels that the engine's thread launched outside the calls that make the forward passes, if these are known."""
    ends = [step.call_end for step in a.steps if step.call_end is not None]
    if len(ends) < len(a.steps):
        return np.zeros(len(ops), dtype=bool)
    launched = np.append(a.launches["t0"], -1)[ops["launch"]]
    by_engine = np.append(a.launches["tid"] == a.call_tid, False)[ops["launch"]]
    step = np.searchsorted([s.t0 for s in a.steps], launched, side="right") - 1
    is_inside = (step >= 0) & (launched < np.array(ends)[step])
    return by_engine & ~is_inside


def _absent(kernels: pd.DataFrame, num_rounds: int, part: str, mode: str) -> Iterator[str]:
    """Why the claim that `part` ran as `mode` fails; `kernels`: its own, in the analysed rounds."""
    missing = num_rounds - kernels["round"].nunique()
    if missing:
        yield f"{part} (claimed {mode}): no kernels of it in {missing} of {num_rounds} rounds"
    elif mode not in _WHOLE:
        for draft, of_pass in kernels.groupby("draft"):
            without = num_rounds - of_pass["round"][of_pass["via_graph"]].nunique()
            where = part + (f" step {draft}" if part in ("later", "drafter") and draft >= 0 else "")
            if without:
                yield f"{where} (claimed {mode}): no graph launch in {without} of {num_rounds} rounds"


def _eager_phases(kernels: pd.DataFrame, num_rounds: int, mode: str) -> Iterator[str]:
    """One reason for each phase and draft step with kernels that no graph launched."""
    for (phase, draft), of_phase in kernels.groupby(["phase", "draft"], observed=True):
        eager = of_phase[~of_phase["via_graph"]]
        if eager.empty:
            continue
        where = phase + (f" step {draft}" if draft >= 0 else "")
        names = sorted(set(eager["name"]))
        shown = ", ".join(name[:60] for name in names[:_NUM_NAMES]) + (", ..." if len(names) > _NUM_NAMES else "")
        yield (
            f"{where} (claimed {mode}): {len(eager)} of {len(of_phase)} kernels launched by the host, in "
            f"{eager['round'].nunique()} of {num_rounds} rounds: {shown}"
        )
