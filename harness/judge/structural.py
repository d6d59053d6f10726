"""Gates without noise: synchronisations, launches, graph share and acceptance, counted rather than timed.

Counts come from the step log. Launches and the graph share of each drafter pass come from a trace,
`profile/<arm>/profile.json` in the run directory, if there is one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from msgspec import Meta

from specbench.harness.judge import gate_result as g
from specbench.harness.judge.figures import Side
from specbench.harness.judge.gate_result import Checked, Gate, GateResult
from specbench.harness.judge.limits import Number, Share, percent
from specbench.harness.metrics.acceptance import acceptance_metrics
from specbench.harness.metrics.figures import ACCEPTANCE_LENGTH, GRAPH_SHARE, LAUNCHES_PER_ROUND, SYNCS_PER_ROUND
from specbench.harness.profiling.record import FILE, Profile, read_profile

_SLACK = 0.01  # counts are means over rounds: one odd round at the edge of a block is not an extra launch
_UNPROVEN = {"void": g.FAILED, "cannot tell": g.NO_DATA}  # verdicts of a certificate that prove no claim
_BY_GRAPH = "rounds_by_graph."


@dataclass(frozen=True, kw_only=True, slots=True)
class _Bounds(Gate):
    """A limit of its own, and one relative to the baseline: no change at all where neither is given. `sign`: 1 where
    less is better, -1 where more is; `words`: of the limit, of a figure beyond it, of a change from the baseline."""

    kind: ClassVar[str] = g.STRUCTURAL
    sign: ClassVar[int]
    words: ClassVar[tuple[str, str, str]]
    slack: ClassVar[float] = 0.0
    no_data: ClassVar[str] = "the run has no such figure"

    def figures(self, side: Side) -> Mapping[str, float | None]:
        """Figures of an arm by subject."""
        raise NotImplementedError

    def bounds(self) -> tuple[float | None, float | None]:
        """The absolute limit, and the change from the baseline that is allowed."""
        raise NotImplementedError

    def text(self, value: float) -> str:
        raise NotImplementedError

    def limit(self) -> str:
        bound, change = self._bounds()
        parts = [f"{self.words[0]} {self.text(bound)}"] if bound is not None else []
        parts += [f"at most {self.text(change)} {self.words[2]} the baseline"] if change is not None else []
        return " and ".join(parts)

    def results(self, checked: Checked) -> Iterator[GateResult]:
        for arm in checked.arms:
            yield from self.of_arm(checked, arm)

    def of_arm(self, checked: Checked, arm: str) -> Iterator[GateResult]:
        base = checked.base(arm)
        references = self.figures(base) if base else {}
        for subject, value in self.figures(Side(run=checked.run, arm=arm)).items():
            yield self._check(arm, subject, value, references.get(subject))

    def _bounds(self) -> tuple[float | None, float | None]:
        bound, change = self.bounds()
        return bound, 0.0 if bound is None and change is None else change

    def _check(self, arm: str, subject: str, value: float | None, reference: float | None) -> GateResult:
        if value is None or not math.isfinite(value):
            return self.result(arm, g.NO_DATA, self.no_data, subject=subject, reference=reference)
        bound, change = self._bounds()
        failed = []
        if bound is not None and self.sign * value > self.sign * bound + self.slack:
            failed.append(f"{self.text(value)} is {self.words[1]} than {self.text(bound)}")
        if reference is not None and change is not None and self.sign * value > self.sign * reference + change + _SLACK:
            failed.append(f"{self.text(value)} instead of {self.text(reference)}")
        status, reason = (g.FAILED, "; ".join(failed)) if failed else (g.PASSED, "")
        if bound is None and reference is None:
            status, reason = g.SKIPPED, "no baseline to compare with"
        return self.result(arm, status, reason, subject=subject, value=value, reference=reference)


@dataclass(frozen=True, kw_only=True, slots=True)
class _CountLimit(_Bounds):
    """At most `max`, and at most `max_increase` more than the baseline (0 where neither is given)."""

    sign: ClassVar[int] = 1
    words: ClassVar[tuple[str, str, str]] = ("at most", "more", "more than")
    slack: ClassVar[float] = _SLACK
    max: Number | None = None
    max_increase: Number | None = None

    def bounds(self) -> tuple[float | None, float | None]:
        return self.max, self.max_increase

    def text(self, value: float) -> str:
        return f"{value:.4g}" if value % 1 else f"{value:g}"


@dataclass(frozen=True, kw_only=True, slots=True)
class _ShareLimit(_Bounds):
    """At least `min`, and at most `max_drop` less than the baseline (0 where neither is given); both fractions."""

    sign: ClassVar[int] = -1
    words: ClassVar[tuple[str, str, str]] = ("at least", "less", "below")
    min: Share | None = None
    max_drop: Share | None = None

    def bounds(self) -> tuple[float | None, float | None]:
        return self.min, self.max_drop

    def text(self, value: float) -> str:
        return percent(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncsGate(_CountLimit):
    """Blocking host synchronisations a decode round: the engine's own count, and the trace's where there is one."""

    name: ClassVar[str] = SYNCS_PER_ROUND.key

    def figures(self, side: Side) -> Mapping[str, float | None]:
        values = [v for block in side.run.blocks(side.arm).values() if (v := block[SYNCS_PER_ROUND.block]) is not None]
        profile = _profile(side)
        traced = {"trace": profile.syncs_per_round} if profile else {}
        return {"": sum(values) / len(values) if values else None, **traced}


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchesGate(_CountLimit):
    """Launches a round, eager calls and graphs together, from the trace."""

    name: ClassVar[str] = LAUNCHES_PER_ROUND.key
    no_data: ClassVar[str] = "no profile of this arm (specbench run --certify-graphs makes one)"

    def figures(self, side: Side) -> Mapping[str, float | None]:
        profile = _profile(side)
        return {"trace": profile.graph.launches_per_round if profile else None}


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphShareGate(_ShareLimit):
    """Share of decode rounds whose target ran from a graph; from the trace, share of kernels of each drafter pass, and
    whether the parts that the arm claims to run as graphs did."""

    name: ClassVar[str] = GRAPH_SHARE.key

    def figures(self, side: Side) -> Mapping[str, float | None]:
        profile = _profile(side)
        passes = {
            f"drafter pass {phase.draft_step + 1}": phase.graph_share_kernels
            for phase in (profile.phases if profile else ())
            if phase.draft_step is not None and phase.graph_share_kernels is not None
        }
        return {"decode rounds": _graph_rounds(side), **passes}

    def of_arm(self, checked: Checked, arm: str) -> Iterator[GateResult]:
        yield from _Bounds.of_arm(self, checked, arm)
        profile = _profile(Side(run=checked.run, arm=arm))
        if profile is not None and profile.graph.verdict in _UNPROVEN:
            reason = "; ".join(profile.graph.reasons) or profile.graph.verdict
            found = self.result(arm, _UNPROVEN[profile.graph.verdict], reason, subject="certificate")
            yield replace(found, limit="what the arm claims to run as a graph does")


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptanceGate(Gate):
    """Acceptance length: at least `min`, and at least `min_of_reference` of `reference` (a number, or one by arm) or
    else of the baseline's."""

    name: ClassVar[str] = ACCEPTANCE_LENGTH.key
    kind: ClassVar[str] = g.STRUCTURAL
    min: Number | None = None
    reference: Number | Annotated[dict[str, Number], Meta(min_length=1)] | None = None
    min_of_reference: Share = Share(0.95)

    def limit(self) -> str:
        own = [f"at least {self.min:g}"] if self.min is not None else []
        return " and ".join([*own, f"at least {percent(self.min_of_reference)} of the reference"])

    def results(self, checked: Checked) -> Iterator[GateResult]:
        for arm in checked.arms:
            value, base = _acceptance_length(Side(run=checked.run, arm=arm)), checked.base(arm)
            of_base = _acceptance_length(base) if base else None
            policy = self.reference.get(arm) if isinstance(self.reference, dict) else self.reference
            reference = of_base if policy is None else policy
            status, reason = self._status(value, reference, checked, arm)
            if policy is None and of_base is not None and (other := checked.other_inputs()):
                status, reason = g.NOT_COMPARABLE, other
            yield self.result(arm, status, reason, value=value, reference=reference)

    def _status(self, value: float | None, reference: float | None, checked: Checked, arm: str) -> tuple[str, str]:
        if value is None:
            has_drafts = reference is not None or checked.run.record.arm(arm).config.num_drafts
            return (g.FAILED, "no draft was verified") if has_drafts else (g.SKIPPED, "no drafts")
        failed = [f"{value:.3f} is less than {self.min:g}"] if self.min is not None and value < self.min else []
        if reference is not None and value < self.min_of_reference * reference:
            failed.append(f"{value:.3f} is {value / reference:.1%} of {reference:.3f}")
        if failed:
            return g.FAILED, "; ".join(failed)
        if self.min is not None or reference is not None:
            return g.PASSED, ""
        if isinstance(self.reference, dict):
            return g.NO_DATA, f"the policy's reference has no figure of this arm, only of {', '.join(self.reference)}"
        return g.SKIPPED, "no reference to compare with"


def _acceptance_length(side: Side) -> float | None:
    """Of all repeats pooled; None without drafts."""
    return acceptance_metrics(side.run.rows("requests", side.arm), side.run.rows("steps", side.arm)).acceptance_length


def _graph_rounds(side: Side) -> float | None:
    """Share of decode rounds whose target forward ran from a graph of any kind; None without rounds."""
    counts: dict[str, float] = {}
    for block in side.run.blocks(side.arm).values():
        for name, count in block.items():
            if name.startswith(_BY_GRAPH):
                mode = name.removeprefix(_BY_GRAPH)
                counts[mode] = counts.get(mode, 0) + (count or 0)
    total = sum(counts.values())
    return 1 - counts.get("none", 0) / total if total else None


def _profile(side: Side) -> Profile | None:
    """The arm's profile in the run directory, named by its subject; ValueError for a damaged one."""
    for path in sorted((side.run.path / "profile").glob(f"*/{FILE}")):
        profile = read_profile(path)
        if (profile.subject.arm if profile.subject else path.parent.name) == side.arm:
            return profile
    return None
