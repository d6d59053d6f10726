"""A run under a policy: noise-free gates first, then the timed ones, and one exit code for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specbench.harness.judge.comparable import side_mismatches
from specbench.harness.judge.comparison import counterpart
from specbench.harness.judge.correctness import BlocksGate, CertificateGate
from specbench.harness.judge.figures import Side
from specbench.harness.judge.gate_result import NO_DATA, SKIPPED, VALIDITY, Checked, GateReport, GateResult, exit_code
from specbench.harness.judge.keys import Mismatch, mismatches, software_changes
from specbench.harness.judge.policy import Policy
from specbench.harness.judge.stored import StoredRun, two_of_one_id
from specbench.harness.judge.timed import timed_results
from specbench.harness.metrics.figures import OWN
from specbench.harness.store.ab_record import LABELS
from specbench.harness.store.environment import GitState
from specbench.harness.store.run_record import RunRecord

_FACTS = {figure.key: figure.fact for figure in OWN}


def run_gates(
    policy: Policy, run: StoredRun, baseline: StoredRun | None = None, allow_mismatch: bool = False
) -> GateReport:
    """Checks `run` against the limits of `policy`, and against `baseline` (or the policy's baseline arm) for relative
    limits. ValueError for arms that the run does not have, and for a run against itself."""
    if baseline is not None and baseline.run_id == run.run_id:
        raise ValueError(f"against: {two_of_one_id(run, baseline)}: a run cannot be its own baseline")
    inner = None if baseline is not None else _inner_baseline(policy, run)
    found = _mismatches(run, baseline, inner)
    checked = Checked(
        run=run,
        baseline=baseline if baseline is not None else (run if inner else None),
        arms={arm: inner or _base_arm(run, arm, baseline) for arm in _arms(policy, run, inner)},
        mismatches=() if allow_mismatch else tuple(found),
    )
    timed = list(timed_results(policy.timed, checked))
    counted = [result for gate in (BlocksGate(timed=timed), *policy.counted) for result in gate.results(checked)]
    results = [_or_unknown(run, result) for result in (*counted, *timed)]
    silent = [name for name in policy.gate if name not in {result.gate for result in results}]
    results += [_of_no_arm(name, checked) for name in silent]
    idle = _idle(policy, results)
    results = [replace(result, status=NO_DATA) if result.gate in idle else result for result in results]
    return GateReport(
        suite=policy.suite,
        run_id=run.name,
        baseline_id=baseline.name if baseline is not None else (f"arm {inner} of the same run" if inner else ""),
        results=tuple(results),
        mismatches=tuple(found),
        notes=tuple(_notes(run, baseline, results)),
        commands={
            name: _command(one.record) for name, one in (("run", run), ("baseline", baseline)) if one is not None
        },
        exit_code=exit_code(results, inconclusive=policy.inconclusive, missing=policy.missing),
        inconclusive=policy.inconclusive,
        missing=policy.missing,
    )


def _idle(policy: Policy, results: Sequence[GateResult]) -> set[str]:
    """Gates of the policy that judge no arm: a run that has lost its baseline or its drafting arms must not pass. A
    certificate that is not required is not missed."""
    judged = {result.gate for result in results if result.status != SKIPPED}
    optional = {name for name, gate in policy.gate.items() if isinstance(gate, CertificateGate) and not gate.required}
    return policy.gate.keys() - judged - optional


def _of_no_arm(name: str, checked: Checked) -> GateResult:
    """The result of a gate that has none, since every arm is a reference: it must not vanish."""
    arms = ", ".join(checked.arms)
    return GateResult(gate=name, kind=VALIDITY, arm=arms, status=NO_DATA, reason="no arm besides the reference")


def _or_unknown(run: StoredRun, result: GateResult) -> GateResult:
    """A figure that the arm's engine cannot know counts as no data, with the engine's reason."""
    fact = _FACTS.get(result.gate)
    if fact is None or result.value is not None or not result.arm:
        return result
    reason = run.record.arm(result.arm).unknown.get(fact)
    return replace(result, status=NO_DATA, reason=reason) if reason else result


def _mismatches(run: StoredRun, baseline: StoredRun | None, inner: str | None) -> list[Mismatch]:
    """Why figures cannot be compared: with the other run, or between the sides of an A/B run."""
    if baseline is not None:
        return mismatches(run.name, baseline.record, run.record)
    sides = run.experiment.sides if run.experiment is not None else {}
    return side_mismatches(run.name, sides["A"], sides["B"]) if inner and set(LABELS) <= set(sides) else []


def _arms(policy: Policy, run: StoredRun, inner: str | None) -> tuple[str, ...]:
    """The policy's arms, or all; in an A/B run only the judged side."""
    failed = [label for label, _ in run.failed]
    for arm in policy.arms:
        if arm not in (*run.arms, *failed):
            raise ValueError(f"arms: {arm!r} is not an arm of {run.path}; allowed: {', '.join(run.arms)}")
    judged = run.arms if run.experiment is None else tuple(arm for arm in run.arms if arm != inner)
    return tuple(arm for arm in policy.arms if arm in run.arms) or judged


def _inner_baseline(policy: Policy, run: StoredRun) -> str | None:
    """The arm of the run itself that others are compared with: the policy's, or A of an A/B experiment."""
    if policy.baseline is not None and policy.baseline not in run.arms:
        raise ValueError(f"baseline: {policy.baseline!r} is not an arm of {run.path}; allowed: {', '.join(run.arms)}")
    return policy.baseline or (LABELS[0] if run.experiment is not None and LABELS[0] in run.arms else None)


def _base_arm(run: StoredRun, arm: str, baseline: StoredRun | None) -> str | None:
    base = counterpart(Side(run=run, arm=arm), baseline) if baseline is not None else None
    return base.arm if base else None


def _notes(run: StoredRun, baseline: StoredRun | None, results: list[GateResult]) -> list[str]:
    notes = [f"{one.name}: {warning}" for one in (run, baseline) if one for warning in one.warnings]
    if baseline is not None:
        notes += [f"differs in {change}" for change in software_changes(baseline.record, run.record)]
    elif run.experiment is not None:
        notes += [f"{label}: {name}" for label, name in sorted(run.experiment.names.items())]
        sides = run.experiment.sides
        if set(LABELS) <= set(sides):
            notes += [f"A and B differ in {change}" for change in software_changes(sides["A"], sides["B"])]
    return [*notes, *dict.fromkeys(r.note for r in results if r.note)]


def _command(record: RunRecord) -> str:
    return f"# {(record.git or GitState()).describe()}\n{record.command}"
