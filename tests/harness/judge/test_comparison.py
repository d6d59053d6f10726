from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compare_samples import ARMS, Machine, make_run
from known_results import results
from run_samples import begun as made

from specbench.harness.judge.comparison import compare_runs
from specbench.harness.judge.keys import comparison_keys
from specbench.harness.judge.stored import read_run, read_runs
from specbench.harness.metrics.metrics import measure_blocks
from specbench.harness.spec.arm import ArmSetup
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.environment import Gpu
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import RunRecord

pytestmark = pytest.mark.usefixtures("quiet_machine")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    return [make_run(folder, Machine(noise_seed=1)), make_run(folder, Machine(noise_seed=2, step_factor=1.03))]


def rows(compared):
    return {(r.run, r.arm): r for r in compared.rows}


def test_arms_of_one_label_meet(pair):
    runs, problems = read_runs(pair)
    compared = compare_runs(runs)
    found = rows(compared)
    own = found[runs[1].name, "eagle:k=4"]
    assert own.baseline == f"{runs[0].name}: eagle:k=4" and not problems and not compared.mismatches
    step = own.comparisons["step_ms"]
    assert step.verdict == "regressed" and step.change == pytest.approx(0.03, abs=0.004)
    assert step.low < 0.03 < step.high and step.metric.pairs == "prompts" and step.num_pairs == 24
    assert own.comparisons["tokens_per_step"].verdict == "equivalent"
    assert own.comparisons["tps"].verdict == "exploratory"
    assert own.same_output == (72, 72)
    assert found[runs[0].name, "no-spec"].is_baseline
    assert any("noise floor" in note for note in compared.notes)


def test_figures_are_those_of_the_metrics_module(pair):
    run = read_run(pair[0])
    for block, whole in measure_blocks(run.frames).items():
        own, derived = (
            {name: repr(value if value is None else float(value)) for name, value in figures.items()}
            for figures in (run.figures[block], whole.values)
        )
        assert own == derived


def test_one_run_is_compared_with_its_own_baseline(pair):
    runs, _ = read_runs(pair[:1])
    found = rows(compare_runs(runs))
    assert found[runs[0].name, "eagle:k=4"].baseline == "no-spec"
    assert found[runs[0].name, "eagle:k=4"].comparisons["tpot_ms"].verdict == "improved"
    other = rows(compare_runs(runs, baseline="eagle:k=4"))
    assert other[runs[0].name, "no-spec"].comparisons["tpot_ms"].verdict == "regressed"


def test_one_repeat_has_no_interval_and_no_verdict_of_times(tmp_path):
    runs, _ = read_runs([make_run(tmp_path, Machine(noise_seed=1, num_repeats=1))])
    compared = compare_runs(runs)
    found = rows(compared)[runs[0].name, "eagle:k=4"].comparisons
    for key in ("tpot_ms", "step_ms", "ttft_ms"):
        assert (found[key].verdict, found[key].low) == ("exploratory", None) and found[key].change is not None
    assert found["tokens_per_step"].verdict == "improved", "a property of the prompts"
    assert any("one repeat has no interval" in note for note in compared.notes)


def test_few_repeats_are_paired_by_prompt_and_show_how_blocks_differ(pair):
    """Two blocks drift apart; 24 prompts that drift together must not narrow it."""
    runs, _ = read_runs(pair[:1])
    steady = rows(compare_runs(runs))[runs[0].name, "eagle:k=4"].comparisons["tpot_ms"]
    figures = {key: dict(values) for key, values in runs[0].figures.items()}
    figures["eagle:k=4", 0]["tpot_ms.mean"] *= 1.5
    drifted = rows(compare_runs([replace(runs[0], figures=figures)]))[runs[0].name, "eagle:k=4"].comparisons["tpot_ms"]
    assert steady.metric.pairs == "prompts" and steady.num_pairs == 24
    assert drifted.high - drifted.low > 3 * (steady.high - steady.low)


def test_arms_that_are_driven_differently_have_no_verdict(tmp_path):
    """Of one run and of two: 60 % of a step may be the way to the server."""
    driven = [
        ("arms", tuple(ArmRecord(label=a, config=ArmSetup(driven=how)) for a, how in zip(ARMS, both, strict=True)))
        for both in (("in process", "HTTP"), ("HTTP", "HTTP"))
    ]
    runs, _ = read_runs(
        make_run(tmp_path, Machine(noise_seed=n, step_factor=1 + 0.6 * n, changes=(each,)))
        for n, each in enumerate(driven)
    )
    one, two = compare_runs(runs[:1]), compare_runs(runs)
    own, other = rows(one)[runs[0].name, ARMS[1]], rows(two)[runs[1].name, ARMS[0]]
    assert {c.verdict for row in (own, other) for c in row.comparisons.values()} == {"exploratory"}
    assert other.comparisons["step_ms"].change > 0.5
    assert any("no verdict: no-spec was driven in process, eagle:k=4 HTTP" in note for note in one.notes)
    assert rows(two)[runs[1].name, ARMS[1]].comparisons["step_ms"].verdict == "regressed", "HTTP on both sides"


@pytest.mark.parametrize("by", ["id", "path", "arm"])
def test_baseline_by_name(pair, by):
    runs, _ = read_runs(pair)
    name = {"id": runs[1].run_id, "path": str(pair[1]), "arm": "no-spec"}[by]
    found = rows(compare_runs(runs, baseline=name))
    if by == "arm":
        assert {key: row.baseline for key, row in found.items()} == {
            (run.name, arm): "no-spec" if arm != "no-spec" else "" for run in runs for arm in run.arms
        }
    else:
        assert found[runs[1].name, "no-spec"].is_baseline and not found[runs[0].name, "no-spec"].is_baseline
    with pytest.raises(ValueError, match="baseline: 'nospec'.*no-spec, eagle:k=4"):
        compare_runs(runs, baseline="nospec")


@pytest.mark.parametrize(
    ("key", "value", "group"),
    [
        ("environment.hardware.gpus", (Gpu(name="NVIDIA H200", driver="580"),), "hardware"),
        ("environment.hardware.cpu.model", "Another", "hardware"),
        ("workload.sha256", "cd" * 32, "workload"),
        ("workload.num_prompts", 5, "workload"),
        ("model.name", "other-model", "workload"),
        ("sampling.temperature", 0.8, "sampling"),
        ("sampling.max_concurrency", 8, "workload"),
    ],
)
def test_what_differs_is_named(tmp_path, pair, key, value, group):
    other = make_run(tmp_path, Machine(noise_seed=3, changes=((key, value),)))
    compared = compare_runs(read_runs([pair[0], other])[0])
    assert compared.mismatches and {m.group for m in compared.mismatches} == {group}


def test_other_prompts_are_not_paired(tmp_path, pair):
    other = make_run(tmp_path, Machine(noise_seed=3, changes=(("workload.sha256", "cd" * 32),)))
    runs, _ = read_runs([pair[0], other])
    row = rows(compare_runs(runs))[runs[1].name, "eagle:k=4"]
    assert row.same_output is None
    assert {c.metric.pairs for c in row.comparisons.values()} == {"repeats"}
    assert {c.verdict for c in row.comparisons.values()} == {"exploratory"}


def test_software_is_told_and_not_refused(tmp_path, pair):
    other = make_run(tmp_path, Machine(noise_seed=3, changes=(("environment.software.python", "3.12"),)))
    compared = compare_runs(read_runs([pair[0], other])[0])
    assert not compared.mismatches and any("python: 3.11 and 3.12" in note for note in compared.notes)


def test_an_arm_without_counterpart_keeps_its_figures(tmp_path, pair):
    other = make_run(tmp_path, Machine(noise_seed=3), arms=("no-spec", "ngram"))
    runs, _ = read_runs([pair[0], other])
    row = rows(compare_runs(runs))[runs[1].name, "ngram"]
    assert row.baseline == "" and not row.is_baseline and row.values["tpot_ms"] > 0


def test_unreadable_runs_are_named_and_the_others_shown(tmp_path, pair):
    half = tmp_path / "half"
    half.mkdir()
    newer = tmp_path / "newer"
    shutil.copytree(pair[0], newer)
    raw = json.loads((newer / "run.json").read_text())
    (newer / "run.json").write_text(json.dumps({**raw, "schema": "specbench.run/99"}))
    cut = tmp_path / "cut"
    shutil.copytree(pair[0], cut)
    (cut / "steps.parquet").write_bytes((cut / "steps.parquet").read_bytes()[:500])
    torn = tmp_path / "torn"
    shutil.copytree(pair[0], torn)
    (torn / "run.json").write_text('{"schema": "specbench.run/1", "run_id": "x"}')
    columns = tmp_path / "columns"
    shutil.copytree(pair[0], columns)
    table = pq.read_table(columns / "steps.parquet")
    pq.write_table(table.drop_columns(["num_syncs"]), columns / "steps.parquet")
    empty = RunDirectory.create(tmp_path, "empty", made("no-spec")).path
    runs, problems = read_runs([half, newer, cut, torn, columns, empty, *pair])
    assert [run.path for run in runs] == pair
    reasons = {p.path: p.reason for p in problems}
    assert "not a run directory" in reasons[str(half)]
    assert "schema 'specbench.run/99'" in reasons[str(newer)]
    assert "steps.parquet: damaged" in reasons[str(cut)]
    assert "run.json: Object missing required field" in reasons[str(torn)]
    assert "steps.parquet: has no column num_syncs" in reasons[str(columns)]
    assert "holds no measured block (status running)" in reasons[str(empty)]
    assert all("\n" not in reason for reason in reasons.values())


def test_two_runs_of_one_id(tmp_path, pair):
    copy, changed = tmp_path / "copy", tmp_path / "changed"
    shutil.copytree(pair[0], copy)
    shutil.copytree(pair[0], changed)
    raw = json.loads((changed / "run.json").read_text())
    raw["files"]["requests.parquet"] = "0"
    (changed / "run.json").write_text(json.dumps(raw))
    runs, problems = read_runs([pair[0], pair[0], copy, changed])
    assert len(runs) == 3 and len({run.name for run in runs}) == 3
    said = [p.reason for p in problems]
    assert "given twice" in said[0] and "a copy with the same raw tables" in said[1] and "differ" in said[2]
    with pytest.raises(ValueError, match="id of several runs"):
        compare_runs(runs, baseline=runs[0].run_id)


def test_figures_that_are_no_numbers_are_left_out_and_named(tmp_path, pair):
    other = tmp_path / "stuck"
    shutil.copytree(pair[1], other)
    table = pd.read_parquet(other / "requests.parquet")
    stuck = (table["arm"] == "eagle:k=4") & (table["prompt_id"] == "p0")
    table.loc[stuck, "t_last_ns"] = table.loc[stuck, "t_first_ns"]  # a TPOT of 0
    schema = pq.read_schema(other / "requests.parquet")
    pq.write_table(pa.Table.from_pandas(table, schema=schema, preserve_index=False), other / "requests.parquet")
    runs, _ = read_runs([pair[0], other])
    compared = compare_runs(runs)
    assert rows(compared)[runs[1].name, "eagle:k=4"].comparisons["tpot_ms"].num_pairs == 23
    assert any("TPOT: 1 pairs are left out" in note for note in compared.notes)


def test_unknown_is_no_match():
    keys = comparison_keys(RunRecord(argv=(), arms=()))
    assert keys["hardware"]["GPU"] == "unknown" and keys["sampling"]["temperature"] == "unknown"


def test_a_void_ttft_is_not_compared_prompt_by_prompt(tmp_path):
    """A prefix cache answered parts of the prompts: the row has a dash, so the change has one too."""
    run = RunDirectory.open(make_run(tmp_path, Machine()))
    run.resume([])
    for repeat in range(3):
        blocks = run.columns("eagle:k=4", repeat)
        hits = {"name": ["engine.prefix_cache_hits"], "value": [5.0]}
        run.append("eagle:k=4", repeat, **{**blocks, "counters": hits})
    run.finish(results(run.frames()))
    row = next(row for row in compare_runs([read_run(run.path)]).rows if row.arm == "eagle:k=4")
    assert row.values["ttft_ms"] is None and row.comparisons["ttft_ms"].verdict == "no data"
    assert row.comparisons["tpot_ms"].num_pairs == 24
