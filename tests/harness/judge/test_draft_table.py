"""The table that a sweep writes for `k=auto`, on made-up rounds with every figure known; `bound` beside such an arm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from run_samples import SAMPLING, begun, chain_block

from specbench.harness.judge.bound import bound_of
from specbench.harness.judge.draft_table import draft_tables
from specbench.harness.metrics.run_results import results
from specbench.harness.spec.arm import ArmConfig, ArmSetup
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.spec.table_records import SweepArm
from specbench.harness.store.codec import write_document
from specbench.harness.store.draft_table import read_draft_table
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import SweepRecord
from specbench.harness.store.sweep_directory import SweepDirectory

LOADS = (1, 8)
ACCEPTED = [4, 0, 2, 1, 3, 0]
ARMS = (
    SweepArm(label="no-spec", family="no-spec"),
    SweepArm(label="eagle:k=1", family="eagle", num_drafts=1),
    SweepArm(label="eagle:k=4", family="eagle", num_drafts=4),
    SweepArm(label="eagle:k=9", family="eagle", num_drafts=9, refused="k=9 is not allowed"),
    SweepArm(label="ngram:k=2,min_n=1", family="ngram:min_n=1", num_drafts=2),
)
ROUND_MS = {1: {0: 10.0, 1: 11.0, 4: 12.0}, 8: {0: 10.0, 1: 18.0, 4: 40.0}}  # by load and drafts


def stored(folder: Path) -> SweepDirectory:
    """ngram is missing at the second load."""
    labels = [arm.label for arm in ARMS if not arm.refused]
    config = RunConfig(arms=tuple(ArmConfig(label=x, strategy=x.split(":")[0]) for x in labels))
    sweep = SweepDirectory.create(folder, "sweep", SweepRecord(argv=("s",), config=config, loads=LOADS, arms=ARMS))
    for load, ms in ROUND_MS.items():
        sampling = replace(SAMPLING, max_concurrency=load)
        about = begun(*labels, sampling=sampling, purpose=sweep.purpose_at(load))
        run = RunDirectory.create(sweep.runs_path, f"sweep-b{load}", about)
        run.append("no-spec", 0, **chain_block([0] * 16, k=0, round_ms=ms[0]))
        for k in (1, 4):
            run.append(f"eagle:k={k}", 0, **chain_block(ACCEPTED, k=k, round_ms=ms[k]))
        if load == 1:
            run.append(labels[-1], 0, **chain_block([1, 0, 1, 1], k=2, round_ms=10.0))
        run.finish(results(run.frames()))
    return sweep


def test_every_figure_by_hand(tmp_path: Path):
    found = draft_tables(stored(tmp_path))
    (table,) = found.tables
    assert (table.strategy, table.options, table.counts, found.model) == ("eagle", {}, (0, 1, 4), "toy-model")
    assert found.left_out == ("load 8: ngram:k=2,min_n=1: was not measured",)
    for load in table.loads:
        assert [one.round_ms for one in load.times] == pytest.approx(list(ROUND_MS[load.max_concurrency].values()))
    # Four requests skip none, one, two and none of the rounds: 21 in all, of which so many accept 0, 1, 2, 3 and 4.
    counts = [7, 4, 4, 4, 2]
    at_least = [sum(counts[n:]) for n in range(5)]
    assert table.acceptance == pytest.approx([b / a for a, b in zip(at_least, at_least[1:], strict=False)])
    fast = table.loads[0].times[-1]
    assert fast.tpot_ms == pytest.approx(12.0 * 21 / sum((n + 1) * c for n, c in enumerate(counts)))
    assert [load.best for load in table.loads] == [4, 0]


def test_a_slow_repeat_does_not_decide(tmp_path: Path):
    sweep = stored(tmp_path)
    (usual,) = draft_tables(sweep).tables
    for run in sweep.runs().values():
        for label, k in (("no-spec", 0), ("eagle:k=1", 1), ("eagle:k=4", 4)):
            for repeat in (1, 2):
                ms = ROUND_MS[run.record.sampling.max_concurrency][k] * (5 if repeat == 1 and k == 4 else 1)
                run.append(label, repeat, **chain_block(ACCEPTED if k else [0] * 16, k=k, round_ms=ms))
    (table,) = draft_tables(sweep).tables
    assert replace(table, loads=()) == replace(usual, loads=())
    for load, before in zip(table.loads, usual.loads, strict=True):
        assert [t.tpot_ms for t in load.times] == pytest.approx([t.tpot_ms for t in before.times])
        assert [t.round_ms for t in load.times] == pytest.approx([t.round_ms for t in before.times])


def test_what_is_written_is_read(tmp_path: Path):
    found = draft_tables(stored(tmp_path))
    write_document(tmp_path / "t.json", found)
    assert read_draft_table(tmp_path / "t.json", "eagle", {}, {}) == found.tables[0]


def test_a_sweep_without_a_base_has_no_table(tmp_path: Path):
    sweep = stored(tmp_path)
    for run in sweep.runs().values():
        run.put_arm(replace(run.record.arm("no-spec"), strategy="other"))
    assert draft_tables(sweep).tables == ()


def test_bound_shows_an_arm_of_changing_counts_and_learns_nothing_wrong_from_it(tmp_path: Path):
    """Its rounds of one draft would say that a second is never accepted."""
    labels = ("no-spec", "eagle:k=4", "eagle:k=auto,k_table=t.json")
    run = RunDirectory.create(tmp_path, "bound", begun(*labels))
    run.append("no-spec", 0, **chain_block([0] * 16, k=0, round_ms=10.0))
    run.append("eagle:k=4", 0, **chain_block(ACCEPTED, k=4, round_ms=12.0))
    before = bound_of(run)
    run.append(labels[2], 0, **chain_block(ACCEPTED, k=1, round_ms=11.0))
    setup = ArmSetup(num_drafts=4, options={"k": "auto", "k_table": "t.json"})
    run.put_arm(replace(run.record.arm(labels[2]), config=setup))
    after = bound_of(run)
    (row,) = [row for row in after.rows if row.name == labels[2]]
    assert (row.what, row.drafts) == ("measured", "auto") and row.tpot_ms == pytest.approx(11 * 21 / 35)
    assert [d.name for d in after.drafters] == ["eagle"] and after.drafters[0].measured == (0, 4)
    assert after.row("round") is not None and after.drafters == before.drafters
