"""The record of an A/B experiment, `ab.json`: rejected blocks, comparisons, verdict and exit code.

It depends only on the run directory, so a stored experiment can be judged again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

from specbench.harness.exit_codes import ExitCode
from specbench.harness.judge.experiment import Experiment, read_experiment
from specbench.harness.judge.figures import pairs_of
from specbench.harness.metrics.figures import COMPARED, TPOT_MS, Figure
from specbench.harness.metrics.run_results import block_values, results_of
from specbench.harness.metrics.same_requests import count_same_outputs
from specbench.harness.stats.power import ALPHA
from specbench.harness.stats.verdict import (
    EQUIVALENT,
    EXPLORATORY,
    IMPROVED,
    INCONCLUSIVE,
    NO_DATA,
    REGRESSED,
    Comparison,
    Pairs,
    compare,
)
from specbench.harness.store.ab_judgement import (
    INVALID,
    MIXED,
    UNFINISHED,
    JudgedArm,
    JudgedMetric,
    Judgement,
    SameOutput,
)
from specbench.harness.store.ab_record import LABELS, AbRecord
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.block_records import BlockRecord, read_records
from specbench.harness.store.run_directory import RunDirectory


def judge(directory: RunDirectory) -> Judgement:
    """Everything that is reported about the experiment.

    exit_code: 0 improved or equivalent (or inconclusive, which --strict makes 3), 1 regressed, 4 invalid (too few or
    too many rejected blocks; a change between equal sides; mixed without a TPOT; no outputs to compare although a share
    of equal ones is required), 6 outputs that differ more than allowed. No verdict before the last block: optional
    stopping inflates false positives.
    """
    record, stored = directory.record, directory.record.ab
    assert stored is not None
    frames = directory.frames()
    figures = block_values(directory, results_of(directory))
    found = read_experiment(directory, figures)
    plan = found.plan
    pairs = [replace(pairs_of(f, frames, figures, found.kept), min_effect=plan.min_effect) for f in COMPARED]
    compared = compare(pairs)
    if found.no_verdict():
        compared = [c if c.verdict == NO_DATA else replace(c, verdict=EXPLORATORY, more_pairs=None) for c in compared]
    answered = frames.requests[frames.requests["repeat"].isin(found.kept)]
    num_same, num_outputs = count_same_outputs(*(answered[answered["arm"] == label] for label in LABELS))
    # A required share that is unknown is not a pass. The ratio, not the product: 11 of 20 are 55 %.
    is_known = num_outputs > 0 or plan.min_same_output == 0
    is_wrong = num_outputs > 0 and num_same / num_outputs < plan.min_same_output
    judged = Judgement(
        run_id=record.run_id,
        status=directory.status,
        plan=plan,
        alpha=ALPHA,
        is_aa=found.is_aa,
        driven_otherwise=found.driven_otherwise,
        mismatches=stored.mismatches,
        code=stored.code,
        arms={arm.label: _arm(arm, stored.names.get(arm.label, "")) for arm in record.arms},
        blocks=found.blocks,
        num_kept=len(found.kept),
        num_rejected=found.num_rejected,
        unchecked=_unchecked(stored, read_records(directory.path)),
        metrics=tuple(
            _judged(one, its, figure, record.arms) for one, its, figure in zip(compared, pairs, COMPARED, strict=True)
        ),
        same_output=SameOutput(num_same=num_same, num_pairs=num_outputs, is_enough=is_known and not is_wrong),
        verdict=_overall(compared, found) if found.is_whole else UNFINISHED,
        product=compared[COMPARED.index(TPOT_MS)].verdict,
        exit_code=ExitCode.WRONG if is_wrong else ExitCode.INVALID,
    )
    return judged if is_wrong or not is_known else replace(judged, exit_code=_exit_code(judged.decisive))


def _arm(arm: ArmRecord, name: str) -> JudgedArm:
    return JudgedArm(name=name, strategy=arm.strategy, notes=tuple(note for note in arm.notes if note != name))


def _judged(compared: Comparison, pairs: Pairs, figure: Figure, arms: Sequence[ArmRecord]) -> JudgedMetric:
    same = {field.name: getattr(compared, field.name) for field in fields(compared)}
    reasons = [arm.unknown[figure.fact] for arm in arms if figure.fact in arm.unknown] if figure.fact else []
    unknown = reasons[0] if reasons and compared.verdict == NO_DATA else ""
    return JudgedMetric(**same, pairs=tuple(pairs.values), unknown=unknown)


def _unchecked(stored: AbRecord, records: Mapping[tuple[str, int], BlockRecord]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*stored.unchecked, *(u for r in records.values() for u in r.unchecked)]))


def _overall(compared: list[Comparison], experiment: Experiment) -> str:
    """The worst verdict of the gated metrics, unless they go both ways; for equal sides it cannot be a change."""
    verdicts = [c.verdict for c in compared if c.metric.gated]
    by_block = [c.verdict for c in compared if c.metric.gated and c.metric.pairs == "blocks"]
    if experiment.has_too_many_rejected or (experiment.is_aa and {IMPROVED, REGRESSED} & set(verdicts)):
        return INVALID
    if all(verdict in (EXPLORATORY, NO_DATA) for verdict in by_block):
        return EXPLORATORY
    if {IMPROVED, REGRESSED} <= set(verdicts):
        return MIXED
    return next(word for word in (REGRESSED, INCONCLUSIVE, IMPROVED, EQUIVALENT) if word in verdicts)


def _exit_code(verdict: str) -> ExitCode:
    if verdict in (INVALID, UNFINISHED, EXPLORATORY, NO_DATA):
        return ExitCode.INVALID
    return ExitCode.FAILED if verdict == REGRESSED else ExitCode.PASSED


def exit_code(judged: Judgement, *, strict: bool) -> ExitCode:
    """The exit code of a judged experiment; with `strict`, an inconclusive one does not pass."""
    code = ExitCode(judged.exit_code)
    is_open = code == ExitCode.PASSED and judged.decisive == INCONCLUSIVE
    return ExitCode.INCONCLUSIVE if strict and is_open else code
