"""Gates without noise: synchronisations, launches and graph share, counted rather than timed.

Counts come from the step log. Launches and the graph share of each drafter pass come from a trace,
`profile/<arm>/profile.json` in the run directory, if there is one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from specbench.harness.judge import gate_result as g
from specbench.harness.judge.figures import Side
from specbench.harness.judge.gate_result import Checked, Gate, GateResult
from specbench.harness.judge.limits import Number, Share, percent
from specbench.harness.metrics.figures import GRAPH_SHARE, LAUNCHES_PER_ROUND, SYNCS_PER_ROUND
from specbench.harness.profiling.profile_file import FILE, read_profile
from specbench.harness.profiling.record import PhaseFigures, Profile

_SLACK = 0.01  # counts are means over rounds: one odd round at the edge of a block is not an extra launch
_UNPROVEN = {"void": g.FAILED, "cannot tell": g.NO_DATA}  # verdicts of a certificate that prove no claim
_BY_GRAPH, _PASSES = "rounds_by_graph.", "counters.engine.cuda_graph_passes/decode_"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Bounds(Gate):
    """An absolute limit, and one relative to the baseline; without either, no change is allowed. `sign`: 1 if less is
    better, -1 if more is; `words`: for the limit, for a figure beyond it, and for a change from the baseline."""

    kind: ClassVar[str] = g.STRUCTURAL
    sign: ClassVar[int]
    words: ClassVar[tuple[str, str, str]]
    slack: ClassVar[float] = 0.0
    no_data: ClassVar[str] = "the run has no such figure"

    def figures(self, side: Side) -> Mapping[str, float | None]:
        """Figures of an arm by subject."""
        raise NotImplementedError

    def bounds(self) -> tuple[float | None, float | None]:
        """The absolute limit, and the allowed change from the baseline."""
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
    """At most `max`, and at most `max_increase` more than the baseline (0 if neither is given)."""

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
class SyncsGate(_CountLimit):
    """Blocking host synchronisations per decode round: the engine's own count if it has one, and the trace's."""

    name: ClassVar[str] = SYNCS_PER_ROUND.key

    def figures(self, side: Side) -> Mapping[str, float | None]:
        values = [v for block in side.run.blocks(side.arm).values() if (v := block[SYNCS_PER_ROUND.block]) is not None]
        profile = _profile(side)
        traced = {"trace": profile.syncs_per_round} if profile else {}
        own = {"": sum(values) / len(values) if values else None} if values or not traced else {}
        return {**own, **traced}


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchesGate(_CountLimit):
    """Launches per round, eager calls and graphs together, from the trace."""

    name: ClassVar[str] = LAUNCHES_PER_ROUND.key
    no_data: ClassVar[str] = "no profile of this arm; runs with --certify-graphs have one"

    def figures(self, side: Side) -> Mapping[str, float | None]:
        profile = _profile(side)
        return {"trace": profile.graph.launches_per_round if profile else None}


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphShareGate(_Bounds):
    """Share of decode rounds whose target ran from a graph, if the engine reports it. From the trace: the share of
    kernels of each drafter pass (and of the target, if the engine does not report it), and whether the parts that the
    arm claims to run as graphs did. At least `min`, and at most `max_drop` less than the baseline (0 if neither is
    given); both are fractions."""

    name: ClassVar[str] = GRAPH_SHARE.key
    sign: ClassVar[int] = -1
    words: ClassVar[tuple[str, str, str]] = ("at least", "less", "below")
    min: Share | None = None
    max_drop: Share | None = None

    def bounds(self) -> tuple[float | None, float | None]:
        return self.min, self.max_drop

    def text(self, value: float) -> str:
        return percent(value)

    def figures(self, side: Side) -> Mapping[str, float | None]:
        profile = _profile(side)
        phases = [p for p in (profile.phases if profile else ()) if p.graph_share_kernels is not None]
        drafter = profile.drafter if profile else ()
        passes = {_pass_name(p): p.graph_share_kernels for p in drafter if p.graph_share_kernels is not None}
        target = [p.graph_share_kernels for p in phases if p.phase == "verify"]
        rounds = _graph_rounds(side)
        # If the engine does not report it: by what launched the kernels.
        own = {"verification": target[0]} if rounds is None and target else {"decode rounds": rounds}
        return {**own, **passes}

    def of_arm(self, checked: Checked, arm: str) -> Iterator[GateResult]:
        yield from _Bounds.of_arm(self, checked, arm)
        profile = _profile(Side(run=checked.run, arm=arm))
        if profile is not None and profile.graph.verdict in _UNPROVEN:
            reason = "; ".join(profile.graph.reasons) or profile.graph.verdict
            found = self.result(arm, _UNPROVEN[profile.graph.verdict], reason, subject="certificate")
            yield replace(found, limit="what the arm claims to run as a graph does")


def _pass_name(phase: PhaseFigures) -> str:
    """The subject of a drafter's phase; passes of other engines may be one phase."""
    return "drafter" if phase.draft_step is None else f"drafter pass {phase.draft_step + 1}"


def _graph_rounds(side: Side) -> float | None:
    """Share of decode rounds whose target forward ran from a graph of any kind; None without rounds. For a server that
    does not report rounds, its own counter (SGLang's cuda_graph_passes_total)."""
    for prefix in (_BY_GRAPH, _PASSES):
        counts: dict[str, float] = {}
        for block in side.run.blocks(side.arm).values():
            for name, count in block.items():
                if name.startswith(prefix):
                    mode = name.removeprefix(prefix)
                    counts[mode] = counts.get(mode, 0) + (count or 0)
        if total := sum(counts.values()):
            return 1 - counts.get("none", 0) / total
    return None


def _profile(side: Side) -> Profile | None:
    """The arm's profile in the run directory, named by its subject; ValueError for a damaged one."""
    for path in sorted((side.run.path / "profile").glob(f"*/{FILE}")):
        profile = read_profile(path)
        if (profile.subject.arm if profile.subject else path.parent.name) == side.arm:
            return profile
    return None
