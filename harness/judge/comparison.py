"""Stored runs side by side: which arm is compared with which, and the results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from specbench.harness.judge.figures import Side, median, pair, same_outputs
from specbench.harness.judge.keys import Mismatch, mismatches, software_changes, unknown_groups
from specbench.harness.judge.machine_noise import NoiseFloors
from specbench.harness.judge.stored import Problem, StoredRun
from specbench.harness.metrics.figures import COMPARED
from specbench.harness.registry import BASELINE
from specbench.harness.stats.verdict import EXPLORATORY, IMPROVED, MIN_EFFECT, REGRESSED, Comparison, Pairs, compare
from specbench.harness.store.ab_record import LABELS

FALSE_CHANGE = "both sides are the same code and configuration: a change between them is false, and the A/A invalid"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One arm of one run. `values`: medians over repeats by figure key. `baseline`: name of what it is compared with;
    empty for a baseline and for an arm without counterpart. marks: the arm's marks in its run. same_output: (identical,
    pairs)."""

    run: str
    arm: str
    baseline: str = ""
    marks: tuple[str, ...]
    values: Mapping[str, float | None]
    comparisons: Mapping[str, Comparison] = field(default_factory=dict)
    is_baseline: bool = False
    same_output: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedRuns:
    """Everything that `specbench compare` reports. mismatches: why figures would not be comparable, empty or
    allowed."""

    rows: tuple[Row, ...]
    mismatches: tuple[Mismatch, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    min_effect: float


def compare_runs(
    runs: Sequence[StoredRun],
    baseline: str | None = None,
    problems: Sequence[Problem] = (),
    min_effect: float = MIN_EFFECT,
) -> ComparedRuns:
    """Every arm against its counterpart in the baseline run, or against the baseline arm of its own run.

    `baseline` names a run (id, directory) or an arm. Without it, the baseline is the first run; with a single run, it
    is `no-spec` (else the first arm), and in an A/B run it is A. ValueError if nothing has that name. Nothing is
    refused: `mismatches` says what differs. Times of two runs have a verdict only with a noise floor of this machine
    (`NoiseFloors`).
    """
    floors = NoiseFloors.of(runs)
    sides = [Side(run=run, arm=arm) for run in runs for arm in run.arms]
    partners = _partners(runs, sides, baseline)
    rows, notes = [], []
    for side, partner in zip(sides, partners, strict=True):
        row, row_notes = _row(side, partner, floors, min_effect, is_baseline=side in partners)
        rows.append(row)
        notes += row_notes
    compared = {p.run.path: p.run for p in partners if p is not None}
    others = [(first, run) for first in compared.values() for run in runs if run is not first]
    found = [m for first, run in others for m in mismatches(run.name, first.record, run.record)]
    for first, run in others:
        notes += [f"{run.name}: differs in {change}" for change in software_changes(first.record, run.record)]
    warned = [f"{run.name}: {warning}" for run in runs for warning in run.warnings]
    for run in runs if len(runs) > 1 else ():
        if unknown := unknown_groups(run.record):
            warned.append(f"{run.name}: {', '.join(unknown)} not recorded, so it may differ")
    return ComparedRuns(
        rows=tuple(rows),
        mismatches=tuple(dict.fromkeys(found)),
        problems=tuple(problems),
        notes=tuple(dict.fromkeys([*warned, *notes])),
        min_effect=min_effect,
    )


def _partners(runs: Sequence[StoredRun], sides: Sequence[Side], baseline: str | None) -> list[Side | None]:
    """What each side is compared with; None for baselines and for arms without counterpart."""
    base_run = _named_run(runs, baseline) if baseline else (runs[0] if len(runs) > 1 else None)
    if base_run is not None and len(runs) > 1:
        return [None if side.run is base_run else counterpart(side, base_run) for side in sides]
    arm = baseline if baseline and base_run is None else _default_arm(runs[0])
    with_arm = [run for run in runs if arm in run.arms]
    if not with_arm:
        known = [*(run.run_id for run in runs), *dict.fromkeys(side.arm for side in sides)]
        raise ValueError(f"baseline: {arm!r} is neither a run nor an arm of these; allowed: {', '.join(known)}")
    partners: list[Side | None] = []
    for side in sides:
        own = side.run if side.run in with_arm else with_arm[0]
        partners.append(None if side.arm == arm else Side(run=own, arm=arm))
    return partners


def _named_run(runs: Sequence[StoredRun], name: str) -> StoredRun | None:
    found = [r for r in runs if name in (r.name, r.run_id, str(r.path), r.path.name) or name.rstrip("/") == str(r.path)]
    if len(found) > 1:
        paths = ", ".join(str(run.path) for run in found)
        raise ValueError(f"baseline: {name!r} is the id of several runs; give one of {paths}")
    return found[0] if found else None


def counterpart(side: Side, base: StoredRun) -> Side | None:
    """The arm with the same label, or the only arm of `base` if both runs have one arm."""
    if side.arm in base.arms:
        return Side(run=base, arm=side.arm)
    return Side(run=base, arm=base.arms[0]) if len(base.arms) == 1 == len(side.run.arms) else None


def _default_arm(run: StoredRun) -> str:
    if run.experiment is not None:
        return LABELS[0] if LABELS[0] in run.arms else run.arms[0]
    named = (arm.imported.baseline or "" for arm in run.record.arms if arm.imported)
    plain = (label for label in run.arms if run.record.arm(label).strategy == BASELINE)
    return next((label for label in (*named, *plain) if label in run.arms), run.arms[0])


def _row(
    side: Side, partner: Side | None, floors: NoiseFloors, min_effect: float, is_baseline: bool
) -> tuple[Row, list[str]]:
    row = Row(
        run=side.run.name,
        arm=side.arm,
        marks=side.run.marks[side.arm],
        values={figure.key: median(figure, side) for figure in COMPARED},
        is_baseline=is_baseline,
    )
    if partner is None:
        return row, []
    pairs = [replace(pair(figure, partner, side, floors), min_effect=min_effect) for figure in COMPARED]
    found = {figure.key: one for figure, one in zip(COMPARED, compare(pairs), strict=True)}
    notes = [note for p in pairs for note in _row_notes(side, p)]
    if side.run is partner.run and _is_false_change(side.run, found.values()):
        notes.append(f"{side.run.name}: {FALSE_CHANGE}")
        found = {key: replace(one, verdict=EXPLORATORY, more_pairs=None) for key, one in found.items()}
    baseline = partner.name if partner.run is not side.run else partner.arm
    return replace(row, baseline=baseline, comparisons=found, same_output=same_outputs(partner, side)), notes


def _row_notes(side: Side, pairs: Pairs) -> Iterator[str]:
    if pairs.num_dropped:
        dropped = f"{pairs.num_dropped} pairs are left out because their values are not positive"
        yield f"{side.name}: {pairs.metric.name}: {dropped}"
    if pairs.no_verdict and pairs.values:
        yield f"{side.run.name}: no verdict: {pairs.no_verdict}"
    if pairs.note and pairs.metric.gated:
        yield pairs.note


def _is_false_change(run: StoredRun, comparisons: Iterable[Comparison]) -> bool:
    changed = any(one.verdict in (IMPROVED, REGRESSED) for one in comparisons)
    return changed and run.experiment is not None and run.experiment.is_aa
