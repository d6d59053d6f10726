"""Gates without noise: synchronisations, launches, graph share and acceptance, counted rather than timed.

Counts come from the step log; what only a trace knows (launches, graph share of each drafter pass) comes from
`profile/<arm>/profile.json` in the run directory, where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from specbench.harness.judge import gate_result as g
from specbench.harness.judge.gate_result import Checked, GateResult
from specbench.harness.judge.limits import by_arm, fraction, key, number, percent
from specbench.harness.judge.stored import StoredRun
from specbench.harness.metrics.acceptance import acceptance_metrics
from specbench.harness.metrics.figures import ACCEPTANCE_LENGTH, GRAPH_SHARE, LAUNCHES_PER_ROUND, SYNCS_PER_ROUND
from specbench.harness.profiling.record import FILE, Profile, read_profile

_SLACK = 0.01  # counts are means over rounds: one odd round at the edge of a block is no extra launch
_UNPROVEN = {"void": g.FAILED, "cannot tell": g.NO_DATA}  # verdicts of a certificate that prove no claim


@dataclass(frozen=True, kw_only=True, slots=True)
class CountLimit:
    """At most `max`, and at most `max_increase` more than the baseline (0 where neither is given)."""

    max: float | None = key(number)
    max_increase: float | None = key(number)

    def check(self, gate: str, arm: str, subject: str, value: float | None, reference: float | None) -> GateResult:
        increase = 0.0 if self.max is None and self.max_increase is None else self.max_increase
        parts = [f"at most {self.max:g}"] if self.max is not None else []
        parts += [f"at most {increase:g} more than the baseline"] if increase is not None else []
        failed = []
        if value is not None and self.max is not None and value > self.max + _SLACK:
            failed.append(f"{value:.4g} is more than {self.max:g}")
        if value is not None and reference is not None and increase is not None:
            if value > reference + increase + _SLACK:
                failed.append(f"{value:.4g} instead of {reference:.4g}")
        checked = self.max is not None or reference is not None
        return _judged(gate, arm, subject, value, reference, " and ".join(parts), failed, checked)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShareLimit:
    """At least `min`, and at most `max_drop` less than the baseline (0 where neither is given); both fractions."""

    min: float | None = key(fraction)
    max_drop: float | None = key(fraction)

    def check(self, gate: str, arm: str, subject: str, value: float | None, reference: float | None) -> GateResult:
        drop = 0.0 if self.min is None and self.max_drop is None else self.max_drop
        parts = [f"at least {percent(self.min)}"] if self.min is not None else []
        parts += [f"at most {percent(drop)} below the baseline"] if drop is not None else []
        failed = []
        if value is not None and self.min is not None and value < self.min:
            failed.append(f"{percent(value)} is less than {percent(self.min)}")
        if value is not None and reference is not None and drop is not None and value < reference - drop - _SLACK:
            failed.append(f"{percent(value)} instead of {percent(reference)}")
        checked = self.min is not None or reference is not None
        return _judged(gate, arm, subject, value, reference, " and ".join(parts), failed, checked)


def _judged(
    gate: str,
    arm: str,
    subject: str,
    value: float | None,
    reference: float | None,
    limit: str,
    failed: list[str],
    checked: bool,
) -> GateResult:
    status, reason = (g.FAILED, "; ".join(failed)) if failed else (g.PASSED, "")
    if value is None or not math.isfinite(value):
        value, status, reason = None, g.NO_DATA, "the run has no such figure"
    elif not checked:
        status, reason = g.SKIPPED, "no baseline to compare with"
    return GateResult(
        gate=gate,
        kind=g.STRUCTURAL,
        arm=arm,
        subject=subject,
        status=status,
        value=value,
        reference=reference,
        limit=limit,
        reason=reason,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncsGate(CountLimit):
    """Blocking host synchronisations a decode round: the engine's own count, and the trace's where there is one."""

    name: ClassVar[str] = SYNCS_PER_ROUND.key

    def results(self, checked: Checked) -> Iterator[GateResult]:
        for arm, base in checked.arms.items():
            own, other = _block_mean(checked.run, arm, self.name), _base_mean(checked, base, self.name)
            yield self.check(self.name, arm, "", own, other)
            if (found := profile_of(checked.run, arm)) is not None:
                reference = _base_profile(checked, base)
                yield self.check(
                    self.name, arm, "trace", found.syncs_per_round, reference.syncs_per_round if reference else None
                )


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchesGate(CountLimit):
    """Launches a round, eager calls and graphs together, from the trace."""

    name: ClassVar[str] = LAUNCHES_PER_ROUND.key

    def results(self, checked: Checked) -> Iterator[GateResult]:
        for arm, base in checked.arms.items():
            own, other = profile_of(checked.run, arm), _base_profile(checked, base)
            value = own.graph.launches_per_round if own else None
            result = self.check(self.name, arm, "trace", value, other.graph.launches_per_round if other else None)
            yield result if own else _without_profile(result)


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphShareGate(ShareLimit):
    """Share of decode rounds whose target ran from a graph; from the trace, share of kernels of each drafter pass, and
    whether the parts that the arm claims to run as graphs did."""

    name: ClassVar[str] = GRAPH_SHARE.key

    def results(self, checked: Checked) -> Iterator[GateResult]:
        for arm, base in checked.arms.items():
            reference = graph_rounds(checked.baseline, base) if checked.baseline and base else None
            yield self.check(self.name, arm, "decode rounds", graph_rounds(checked.run, arm), reference)
            own = profile_of(checked.run, arm)
            if own is not None:
                yield from self._passes(arm, own, _base_profile(checked, base))

    def _passes(self, arm: str, own: Profile, base: Profile | None) -> Iterator[GateResult]:
        references = _pass_shares(base) if base else {}
        for draft_step, share in _pass_shares(own).items():
            yield self.check(self.name, arm, f"drafter pass {draft_step + 1}", share, references.get(draft_step))
        if own.graph.verdict in _UNPROVEN:
            yield GateResult(
                gate=self.name,
                kind=g.STRUCTURAL,
                arm=arm,
                subject="certificate",
                status=_UNPROVEN[own.graph.verdict],
                limit="what the arm claims to run as a graph does",
                reason="; ".join(own.graph.reasons) or own.graph.verdict,
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptanceGate:
    """Acceptance length: at least `min`, and at least `min_of_reference` of `reference` (a number, or one by arm) or
    else of the baseline's."""

    name: ClassVar[str] = ACCEPTANCE_LENGTH.key
    min: float | None = key(number)
    reference: float | dict[str, float] | None = key(by_arm)
    min_of_reference: float = key(fraction, 0.95)

    def results(self, checked: Checked) -> Iterator[GateResult]:
        for arm, base in checked.arms.items():
            yield self._result(checked, arm, base)

    def _result(self, checked: Checked, arm: str, base: str | None) -> GateResult:
        value = acceptance_length(checked.run, arm)
        given = self.reference.get(arm) if isinstance(self.reference, dict) else self.reference
        own_base = acceptance_length(checked.baseline, base) if checked.baseline and base else None
        reference = given if given is not None else own_base
        common: dict[str, Any] = {"gate": self.name, "kind": g.STRUCTURAL, "arm": arm}
        common |= {"value": value, "reference": reference}
        limit = [f"at least {self.min:g}"] if self.min is not None else []
        limit += [f"at least {percent(self.min_of_reference)} of the reference"]
        if given is None and own_base is not None and (reason := checked.other_inputs()):
            return GateResult(**common, status=g.NOT_COMPARABLE, limit=" and ".join(limit), reason=reason)
        if value is None:
            status = g.SKIPPED if reference is None and not _drafts(checked.run, arm) else g.FAILED
            reason = "no drafts" if status == g.SKIPPED else "no draft was verified"
            return GateResult(**common, status=status, limit=" and ".join(limit), reason=reason)
        failed = [f"{value:.3f} is less than {self.min:g}"] if self.min is not None and value < self.min else []
        if reference is not None and value < self.min_of_reference * reference:
            failed.append(f"{value:.3f} is {value / reference:.1%} of {reference:.3f}")
        if failed:
            return GateResult(**common, status=g.FAILED, limit=" and ".join(limit), reason="; ".join(failed))
        if self.min is None and reference is None and isinstance(self.reference, dict):
            reason = f"the policy's reference has no figure of this arm, only of {', '.join(self.reference)}"
            return GateResult(**common, status=g.NO_DATA, limit=" and ".join(limit), reason=reason)
        known = self.min is not None or reference is not None
        status, reason = (g.PASSED, "") if known else (g.SKIPPED, "no reference to compare with")
        return GateResult(**common, status=status, limit=" and ".join(limit), reason=reason)


_BY_GRAPH = "rounds_by_graph."


def acceptance_length(run: StoredRun, arm: str) -> float | None:
    """Of all repeats pooled; None without drafts."""
    return acceptance_metrics(run.rows("requests", arm), run.rows("steps", arm)).acceptance_length


def graph_rounds(run: StoredRun, arm: str) -> float | None:
    """Share of decode rounds whose target forward ran from a graph of any kind; None without rounds."""
    counts: dict[str, float] = {}
    for block in run.blocks(arm).values():
        for name, count in block.items():
            if name.startswith(_BY_GRAPH):
                mode = name.removeprefix(_BY_GRAPH)
                counts[mode] = counts.get(mode, 0) + (count or 0)
    total = sum(counts.values())
    return 1 - counts.get("none", 0) / total if total else None


def profile_of(run: StoredRun, arm: str) -> Profile | None:
    """The arm's profile in the run directory, told by its subject; ValueError for a damaged one."""
    for path in sorted((run.path / "profile").glob(f"*/{FILE}")):
        profile = read_profile(path)
        if (profile.subject.arm if profile.subject else path.parent.name) == arm:
            return profile
    return None


def _pass_shares(profile: Profile) -> dict[int, float]:
    """Share of kernels that a graph launched, of every drafter pass, from 0."""
    return {
        p.draft_step: p.graph_share_kernels
        for p in profile.phases
        if p.draft_step is not None and p.graph_share_kernels is not None
    }


def _base_profile(checked: Checked, base: str | None) -> Profile | None:
    return profile_of(checked.baseline, base) if checked.baseline is not None and base is not None else None


def _block_mean(run: StoredRun, arm: str, name: str) -> float | None:
    values = [value for block in run.blocks(arm).values() if (value := block[name]) is not None]
    return sum(values) / len(values) if values else None


def _base_mean(checked: Checked, base: str | None, name: str) -> float | None:
    return _block_mean(checked.baseline, base, name) if checked.baseline is not None and base is not None else None


def _without_profile(result: GateResult) -> GateResult:
    return replace(result, reason="no profile of this arm (specbench run --certify-graphs makes one)")


def _drafts(run: StoredRun, arm: str) -> bool:
    return bool(run.record.arm(arm).config.num_drafts)
