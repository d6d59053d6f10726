"""Runs of one command, of one repeat each, as one run.

A process, and a start of a machine, shifts all blocks that it measures alike (memory layout, clocks, neighbours).
Intervals take blocks as independent, which repeats of one process are not; repeats of several processes are. pyperf
starts worker processes for the same reason.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path

from specbench.harness.exit_codes import NotComparableError
from specbench.harness.judge.keys import comparison_keys, unknown_groups
from specbench.harness.metrics.run_results import results
from specbench.harness.spec.arm import ArmSetup
from specbench.harness.spec.conditions import Conditions
from specbench.harness.store.block_records import add_record, read_records
from specbench.harness.store.environment import Software
from specbench.harness.store.inputs_record import ModelRecord
from specbench.harness.store.prompts import copy_prompts
from specbench.harness.store.purpose import Purpose
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import PooledRun, RunRecord
from specbench.harness.store.writing import writing
from specbench.harness.text import check_label

_SHOWN = 3  # differences that a refusal names


def pool_runs(paths: Sequence[Path], output_dir: Path, label: str, argv: Sequence[str]) -> RunDirectory:
    """A new run directory, whose repeat n is the only repeat of the run n.

    Raises ValueError for a run that cannot be pooled (of more repeats, incomplete, of an experiment, imported, named
    twice) and NotComparableError for runs that differ in arms, options, model, prompts, hardware or software. Only the
    code may differ: the report names it for each repeat.
    """
    if len(paths) < 2:
        raise ValueError(f"runs: {len(paths)} is not allowed; give at least two run directories")
    check_label(label)
    runs = [RunDirectory.open(path) for path in paths]
    for i, run in enumerate(runs):
        _check(run)
        if run.record.run_id in [other.record.run_id for other in runs[:i]]:
            raise ValueError(f"runs: {run.path} is named twice, or is a copy; it is one measurement")
        found = list(_differences(runs[0].record, run.record))
        if found:
            more = [f"{len(found) - _SHOWN} more"] * (len(found) > _SHOWN)
            raise NotComparableError(f"{runs[0].path} and {run.path} differ in {'; '.join([*found[:_SHOWN], *more])}")
    with writing("output_dir", output_dir):
        pooled = RunDirectory.create(output_dir, label, _begun([run.record for run in runs], argv))
    try:
        _fill(pooled, runs)
    except BaseException:  # also Ctrl-C: nothing else can complete it
        shutil.rmtree(pooled.path)
        raise
    return pooled


def _check(run: RunDirectory) -> None:
    """ValueError for a run that is not one complete repeat of arms."""
    record, purpose = run.record, run.record.purpose
    others = (record.pooled, record.is_imported, record.ab, record.profile, record.config is None)
    if any(others) or purpose != Purpose(
        recipe=purpose.recipe, ablation=purpose.ablation, acceptance=purpose.acceptance
    ):
        raise ValueError(
            f"runs: {run.path} is not allowed; allowed: runs of `specbench run` that only measure speed, without a "
            "sweep, an evaluation or graph certificates"
        )
    num_repeats = record.measured_config.num_repeats
    if num_repeats != 1:
        raise ValueError(
            f"runs: {run.path} has {num_repeats} repeats, which are not independent; give runs of one (--num-repeats 1)"
        )
    failed, missing = run.failed_blocks(), {(arm.label, 0) for arm in record.arms} - run.done_blocks()
    if record.status != "complete" or failed or missing:
        what = (
            f"lacks {', '.join(sorted(arm for arm, _ in {*failed, *missing}))}" if failed or missing else record.status
        )
        raise ValueError(f"runs: {run.path} is not complete ({what}); finish it: specbench run --resume {run.path}")
    unknown = unknown_groups(record)
    if unknown:
        raise ValueError(f"runs: {run.path} does not record its {' and '.join(unknown)}, so it cannot be pooled")


def _differences(first: RunRecord, other: RunRecord) -> Iterator[str]:
    a, b = _conditions(first), _conditions(other)
    for key in {**a, **b}:
        one, another = a.get(key, "none"), b.get(key, "none")
        if one != another:
            yield f"{key}: {one} and {another}"


def _conditions(record: RunRecord) -> dict[str, str]:
    """Everything that must be the same for runs to be repeats of one measurement."""
    found: dict[str, object] = {"arms": ", ".join(arm.label for arm in record.arms)}
    found |= {f"option {each.name}": getattr(record.config, each.name) for each in fields(Conditions)}
    for arm in record.arms:
        found |= {f"{arm.label}: {each.name}": getattr(arm.config, each.name) for each in fields(ArmSetup)}
        found[f"{arm.label}: strategy"] = arm.strategy
        found[f"{arm.label}: engine's version"] = arm.engine.version if arm.engine else None
    model, software = record.model or ModelRecord(), record.environment.software or Software()
    found |= {f"model {each.name}": getattr(model, each.name) for each in fields(ModelRecord)}
    found |= {"python": software.python, "CUDA of torch": software.torch_cuda, **software.packages}
    keys = comparison_keys(record)
    found |= {**keys["hardware"], "prompts sha256": keys["workload"]["prompts sha256"]}
    recipe = record.purpose.recipe
    found["recipe"] = f"{recipe.name} ({recipe.sha256[:12]})" if recipe else None
    return {key: "none" if value in (None, "") else str(value) for key, value in found.items()}


def _begun(records: Sequence[RunRecord], argv: Sequence[str]) -> RunRecord:
    first = records[0]
    notes = [[note for record in records for note in record.arm(arm.label).notes] for arm in first.arms]
    return RunRecord(
        argv=tuple(argv),
        started_utc=first.started_utc,
        git=first.git if all(record.git == first.git for record in records) else None,
        environment=first.environment,
        config=replace(first.measured_config, num_repeats=len(records)),
        model=first.model,
        workload=first.workload,
        sampling=first.sampling,
        arms=tuple(replace(a, notes=tuple(dict.fromkeys(own))) for a, own in zip(first.arms, notes, strict=True)),
        purpose=first.purpose,
        forwards=first.forwards,
        pooled=tuple(
            PooledRun(
                run_id=record.run_id,
                started_utc=record.started_utc,
                code=record.git.describe() if record.git else "",
                command=record.command,
            )
            for record in records
        ),
    )


def _fill(pooled: RunDirectory, runs: Sequence[RunDirectory]) -> None:
    copy_prompts(runs[0].path, pooled.path)
    for number, run in enumerate(runs):
        for arm in run.record.arms:
            pooled.append(arm.label, number, **run.columns(arm.label, 0))
        for seen in read_records(run.path).values():
            add_record(pooled.path, replace(seen, block=number, run_id=run.record.run_id))
    pooled.finish(results(pooled.frames()))
