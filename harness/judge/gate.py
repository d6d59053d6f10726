"""A run under a policy: noise-free gates first, then the timed ones, and one exit code for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from specbench.harness.judge.ab_gate import blocks_results
from specbench.harness.judge.comparable import side_mismatches
from specbench.harness.judge.comparison import counterpart
from specbench.harness.judge.experiment import Experiment
from specbench.harness.judge.figures import Side
from specbench.harness.judge.gate_result import NO_DATA, Checked, GateReport, GateResult, exit_code
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
    """Checks `run` against the limits of `policy`, and against `baseline` (or the policy's baseline arm) where limits
    are relative. ValueError for arms that the run has not, and for a run against itself."""
    if baseline is not None and baseline.run_id == run.run_id:
        raise ValueError(f"against: {two_of_one_id(run, baseline)}: a run cannot be its own baseline")
    inner = None if baseline is not None else _own_baseline(policy, run)
    found = _mismatches(run, baseline, inner)
    checked = Checked(
        run=run,
        baseline=baseline if baseline is not None else (run if inner else None),
        arms={arm: inner or _base_arm(run, arm, baseline) for arm in _arms(policy, run, inner)},
        mismatches=() if allow_mismatch else tuple(found),
    )
    results = [result for gate in policy.counted for result in gate.results(checked)]
    timed = list(timed_results(policy.timed, checked))
    results = [_or_unknown(run, result) for result in (*blocks_results(checked, timed), *results, *timed)]
    return GateReport(
        suite=policy.suite,
        run_id=run.name,
        baseline_id=baseline.name if baseline is not None else (f"arm {inner} of the same run" if inner else ""),
        results=tuple(results),
        mismatches=tuple(found),
        notes=tuple(_notes(run, baseline, results)),
        commands=_commands(run, baseline),
        exit_code=exit_code(results, inconclusive=policy.inconclusive, missing=policy.missing),
        inconclusive=policy.inconclusive,
        missing=policy.missing,
    )


def _or_unknown(run: StoredRun, result: GateResult) -> GateResult:
    """A figure that the arm's engine cannot know is no data, with the engine's own reason."""
    fact = _FACTS.get(result.gate)
    if fact is None or result.value is not None or not result.arm:
        return result
    reason = run.record.arm(result.arm).unknown.get(fact)
    return replace(result, status=NO_DATA, reason=reason) if reason else result


def _mismatches(run: StoredRun, baseline: StoredRun | None, inner: str | None) -> list[Mismatch]:
    """What keeps figures from being compared: with the other run, or of the sides of an A/B run."""
    if baseline is not None:
        return mismatches(run.name, baseline.record, run.record)
    sides = run.experiment.sides if run.experiment is not None else {}
    return side_mismatches(run.name, sides["A"], sides["B"]) if inner and set(LABELS) <= set(sides) else []


def _arms(policy: Policy, run: StoredRun, inner: str | None) -> tuple[str, ...]:
    """Those that the policy names, or all; of an A/B run the side that is judged: what A lacks is not B's fault."""
    known = (*run.arms, *(label for label, _ in run.failed))
    missing = [arm for arm in policy.arms if arm not in known]
    if missing:
        raise ValueError(f"arms: {missing[0]!r} is no arm of {run.path}; allowed: {', '.join(run.arms)}")
    judged = run.arms if run.experiment is None else tuple(arm for arm in run.arms if arm != inner)
    return tuple(arm for arm in policy.arms if arm in run.arms) or judged


def _own_baseline(policy: Policy, run: StoredRun) -> str | None:
    """The arm of the run itself that others are compared with: as the policy says; A of an A/B experiment."""
    if policy.baseline is not None and policy.baseline not in run.arms:
        raise ValueError(f"baseline: {policy.baseline!r} is no arm of {run.path}; allowed: {', '.join(run.arms)}")
    return policy.baseline or (LABELS[0] if run.experiment is not None and LABELS[0] in run.arms else None)


def _base_arm(run: StoredRun, arm: str, baseline: StoredRun | None) -> str | None:
    if baseline is None:
        return None
    found = counterpart(Side(run=run, arm=arm), baseline)
    return found.arm if found else None


def _notes(run: StoredRun, baseline: StoredRun | None, results: list[GateResult]) -> list[str]:
    notes = [f"{one.name}: {warning}" for one in (run, baseline) if one for warning in one.warnings]
    if baseline is not None:
        notes += [f"differs in {change}" for change in software_changes(baseline.record, run.record)]
    elif run.experiment is not None:
        notes += _sides(run.experiment)
    return [*notes, *dict.fromkeys(r.note for r in results if r.note)]


def _sides(experiment: Experiment) -> list[str]:
    """What A and B are, and what code they ran."""
    notes = [f"{label}: {name}" for label, name in sorted(experiment.names.items())]
    sides = experiment.sides
    if set(LABELS) <= set(sides):
        notes += [f"A and B differ in {change}" for change in software_changes(sides["A"], sides["B"])]
    return notes


def _commands(run: StoredRun, baseline: StoredRun | None) -> Mapping[str, str]:
    def command(record: RunRecord) -> str:
        return f"# {(record.git or GitState()).describe()}\n{record.command}"

    found = {"run": command(run.record)}
    return found | ({"baseline": command(baseline.record)} if baseline is not None else {})
