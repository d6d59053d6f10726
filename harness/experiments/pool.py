"""Runs of one command, made one after the other or on several machines, pooled into one run.

A process, and a start of a machine, moves every block that it measures in the same direction (memory layout, clocks,
neighbours). Repeats of one process do not show that; pooled runs do, because their intervals are over blocks. The
worker processes of pyperf serve the same purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from specbench.harness.exit_codes import NotComparableError
from specbench.harness.judge.comparable import differences
from specbench.harness.metrics.run_results import results
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.store.block_records import add_record, read_records
from specbench.harness.store.block_store import Block
from specbench.harness.store.prompts import copy_prompts
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import PooledRun, RunRecord


def pool_runs(paths: Sequence[Path], output_dir: Path, label: str, argv: Sequence[str]) -> RunDirectory:
    """A new run directory with the blocks of all these runs, numbered on from one to the next.

    Raises ValueError for a run that cannot be pooled (incomplete, of an experiment, imported, named twice) and
    NotComparableError for runs that differ in arms, options, hardware, prompts or sampling. Their code may differ: the
    report names it for each repeat.
    """
    if len(paths) < 2:
        raise ValueError(f"runs: {len(paths)} is not allowed; give at least two run directories")
    runs = [RunDirectory.open(path) for path in paths]
    numbers = [_numbers(run) for run in runs]
    first = runs[0].record
    for i, run in enumerate(runs):
        if run.record.run_id in [other.record.run_id for other in runs[:i]]:
            raise ValueError(f"runs: {run.path} is named twice, or is a copy; its repeats are not new measurements")
        found = _differences(first, run.record)
        if found:
            raise NotComparableError(f"{run.path} and {runs[0].path} differ in {'; '.join(found)}")
    begun = RunRecord(
        argv=tuple(argv),
        started_utc=first.started_utc,
        git=first.git,
        environment=first.environment,
        config=replace(first.measured_config, num_repeats=sum(map(len, numbers))),
        model=first.model,
        workload=first.workload,
        sampling=first.sampling,
        arms=first.arms,
        purpose=first.purpose,
        forwards=first.forwards,
        pooled=tuple(_pooled(run.record, len(each)) for run, each in zip(runs, numbers, strict=True)),
    )
    pooled = RunDirectory.create(output_dir, label, begun)
    copy_prompts(runs[0].path, pooled.path)
    blocks = [(run, repeat) for run, own in zip(runs, numbers, strict=True) for repeat in own]
    for number, (run, repeat) in enumerate(blocks):
        seen = read_records(run.path)
        for arm in first.arms:
            pooled.append(arm.label, number, **run.columns(arm.label, repeat))
            if (arm.label, repeat) in seen:
                record = seen[arm.label, repeat]
                add_record(pooled.path, replace(record, block=number, run_id=run.record.run_id))
    pooled.finish(results(pooled.frames()))
    return pooled


def _numbers(run: RunDirectory) -> list[int]:
    """The numbers of a run's repeats, each with a block of every arm."""
    record = run.record
    if record.pooled or record.is_imported or record.ab or record.profile or record.evaluation or record.config is None:
        raise ValueError(f"runs: {run.path} is not allowed; allowed: runs of `specbench run` without evaluation")
    if record.status != "complete":
        raise ValueError(f"runs: {run.path} is {record.status}; finish it: specbench run --resume {run.path}")
    done: set[Block] = run.done_blocks()
    numbers = sorted({repeat for _, repeat in done})
    lacking = [f"{arm.label}, repeat {n + 1}" for n in numbers for arm in record.arms if (arm.label, n) not in done]
    if lacking or not numbers:
        raise ValueError(
            f"runs: {run.path} lacks blocks ({'; '.join(lacking) or 'all'}); measure them: specbench run --resume "
            f"{run.path}"
        )
    return numbers


def _differences(first: RunRecord, other: RunRecord) -> list[str]:
    """Why repeats of the two are not repeats of one measurement, one line each."""
    arms = [[(arm.label, arm.strategy, arm.config) for arm in record.arms] for record in (first, other)]
    a, b = first.measured_config, other.measured_config
    options = [
        f"option: {each.name}: {getattr(a, each.name)} and {getattr(b, each.name)}"
        for each in fields(RunConfig)
        if each.name not in ("arms", "num_repeats") and getattr(a, each.name) != getattr(b, each.name)
    ]
    return [*(["arms"] if arms[0] != arms[1] or a.arms != b.arms else []), *options, *differences(first, other)]


def _pooled(record: RunRecord, num_repeats: int) -> PooledRun:
    return PooledRun(
        run_id=record.run_id,
        num_repeats=num_repeats,
        started_utc=record.started_utc,
        code=record.git.describe() if record.git else "",
        command=record.command,
    )
