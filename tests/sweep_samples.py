"""A stored sweep for tests of reports: made-up blocks at three loads, one arm with a break-even, ideals beside them."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path

from known_results import results
from roofline_samples import MACHINE
from run_samples import SAMPLING, begun, chain_block
from site_samples import EAGLE, HOSTILE

from specbench.harness.judge.crossover_record import crossover_record
from specbench.harness.judge.crossover_samples import LoadPoint
from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.spec.table_records import SweepArm
from specbench.harness.store.crossover_file import Crossover, DescribedMachine
from specbench.harness.store.inputs_record import WorkloadRecord
from specbench.harness.store.roofline_record import IdealArm, MeanRound
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import SweepRecord
from specbench.harness.store.sweep_directory import SweepDirectory
from specbench.reports.experiments.sweep_report import write_sweep_reports

LOADS = (1, 8, 64)
REFUSED = "eagle:k=9"
IDEAL = {"no-spec": 1.0, EAGLE: 3.0, HOSTILE: 1.5}


def stored_sweep(folder: Path) -> SweepDirectory:
    """Two blocks of three arms at each of LOADS, derived and written; EAGLE's break-even is between 8 and 64."""
    labels = list(IDEAL)
    arms = tuple(ArmConfig(label=label, strategy=label.split(":")[0]) for label in labels)
    rows = [SweepArm(label=a.label, family=a.strategy, num_drafts=n or None) for n, a in enumerate(arms)]
    rows.append(SweepArm(label=REFUSED, family="eagle", num_drafts=9, refused="k=9 is not allowed; allowed: 1 to 8"))
    config = RunConfig(arms=arms, dataset_name="random", num_prompts=4)
    argv = ("specbench", "sweep", "-s", EAGLE, "--label", "it's <b>")
    sweep = SweepDirectory.create(folder, "sweep", SweepRecord(argv=argv, config=config, loads=LOADS, arms=tuple(rows)))
    for load in LOADS:
        _run(sweep, load)
    sweep.close()
    write_sweep_reports(sweep.path, sample_record(sweep))
    return sweep


def sample_record(sweep: SweepDirectory) -> Crossover:
    points = [_point(load, run) for load, run in sweep.runs().items()]
    families = {arm.label: (arm.family, arm.num_drafts) for arm in sweep.record.arms}
    known = {key: getattr(sweep.record, key) for key in ("sweep_id", "status", "command", "notes")}
    refused = tuple(arm for arm in sweep.record.arms if arm.refused)
    machine = DescribedMachine(**asdict(MACHINE), described="a machine of the tests")
    more = {"asked_loads": LOADS, "refused": refused, "machine": machine, "hardware": "Test CPU", "model": "toy"}
    toy = WorkloadRecord(name="toy", num_prompts=4)
    return replace(crossover_record(points, families), **known, **more, workload=toy)


def _run(sweep: SweepDirectory, load: int) -> None:
    about = begun(*IDEAL, sampling=replace(SAMPLING, max_concurrency=load), purpose=sweep.purpose_at(load))
    base, eagle, *rest = about.arms
    arms = (base, replace(eagle, notes=("synthetic acceptance (3.0)",)), *rest)
    run = RunDirectory.create(sweep.runs_path, f"sweep-b{load}", replace(about, arms=arms))
    grown = math.log2(load)
    for block in range(2):
        drift = block * 0.1
        run.append("no-spec", block, **chain_block([0] * 12, k=0, round_ms=8.0 + grown + drift))
        run.append(EAGLE, block, **chain_block([4, 0, 2, 1, 3, 0], round_ms=10.0 + 5 * grown + drift))
        run.append(HOSTILE, block, **chain_block([1, 0, 0, 1, 0, 0], k=2, round_ms=9.0 + grown + drift))
    run.finish(results(run.frames()))


def _ideal(label: str, load: int, speedup: float) -> IdealArm:
    """At half of what the machine allows, whatever was measured."""
    measured = MeanRound(batch=float(load), context=20.0, rates=(0.5,), tokens=1.5, first_rows=2.0, duration_ms=10.0)
    return IdealArm(
        label=label, strategy=label, measured=measured, ideal_ms={"verify": 5.0}, ideal_speedup=speedup, free_rows=181.4
    )


def _point(load: int, run: RunDirectory) -> LoadPoint:
    ideal = {label: _ideal(label, load, speedup / math.sqrt(load)) for label, speedup in IDEAL.items()}
    record = run.record
    return LoadPoint(load=load, run_id=record.run_id, arms=record.arms, requests=run.frames().requests, ideal=ideal)
