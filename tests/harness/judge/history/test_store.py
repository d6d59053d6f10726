from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from ab_samples import experiment
from compare_samples import Machine, make_run

from specbench.harness.judge.history import points, store
from specbench.harness.judge.history.accepted import Accepted, accept, accepted_commits, read_accepted
from specbench.harness.judge.history.adding import ADDED, ALREADY, add_run
from specbench.harness.judge.history.points import build_series, points_of
from specbench.harness.judge.history.steps import is_named
from specbench.harness.judge.history.store import INDEX, read_history
from specbench.harness.judge.stored import read_run, read_runs
from specbench.harness.spec.arm import ArmConfig, ArmSetup
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.codec import write_document
from specbench.harness.store.inputs_record import ModelRecord
from specbench.reports.site.find import find_runs

SMALL = {"num_prompts": 3, "num_rounds": 4, "num_repeats": 1}


def runs(folder, num, **more):
    return [make_run(folder, Machine(noise_seed=n, sha=f"{n:040x}", **SMALL, **more)) for n in range(num)]


def test_jobs_add_at_the_same_time(tmp_path):
    made = runs(tmp_path / "made", 4)
    history = tmp_path / "history"
    with ThreadPoolExecutor(8) as pool:
        added = list(pool.map(lambda run: add_run(history, run), made * 3))
    assert sorted(one.outcome for one in added) == [ADDED] * 4 + [ALREADY] * 8
    assert sorted(p.name for p in (history / "runs").iterdir()) == sorted(run.name for run in made)
    found = read_history(history)
    assert not found.problems and {p.run_id for p in found.points} == {run.name for run in made}


def test_the_index_is_a_cache(tmp_path, monkeypatch):
    for run in runs(tmp_path / "made", 2):
        add_run(tmp_path / "h", run)
    first = read_history(tmp_path / "h")
    reads = []
    import specbench.harness.judge.history.store as store

    real = store.read_run
    monkeypatch.setattr(store, "read_run", lambda path: reads.append(path) or real(path))
    assert read_history(tmp_path / "h").points == first.points and reads == []
    (tmp_path / "h" / INDEX).unlink()
    assert read_history(tmp_path / "h").points == first.points and len(reads) == 2
    (tmp_path / "h" / INDEX).write_text("{")
    assert read_history(tmp_path / "h").points == first.points


def test_another_run_of_the_same_id_is_refused_and_named(tmp_path):
    one, other = runs(tmp_path / "made", 2)
    add_run(tmp_path / "h", one)
    raw = json.loads((other / "run.json").read_text())
    (other / "run.json").write_text(json.dumps({**raw, "run_id": one.name}))
    with pytest.raises(ValueError, match="its raw tables differ"):
        add_run(tmp_path / "h", other)
    shutil.copytree(one, tmp_path / "h" / "runs" / "copy")
    found = read_history(tmp_path / "h")
    assert len({p.path for p in found.points}) == 1
    assert [p.reason for p in found.problems if "has the run id of" in p.reason]


def test_what_is_no_run_is_named(tmp_path):
    (run,) = runs(tmp_path / "made", 1)
    add_run(tmp_path / "h", run)
    (tmp_path / "h" / "runs" / "half").mkdir()
    found = read_history(tmp_path / "h")
    assert found.points and ["incomplete, or not a run" in p.reason for p in found.problems] == [True]
    with pytest.raises(ValueError, match="does not exist"):
        read_history(tmp_path / "nowhere")


@pytest.mark.parametrize("look", [lambda folder: read_history(folder).problems, lambda folder: find_runs([folder])[1]])
def test_a_folder_of_another_user_is_a_problem_and_no_end(tmp_path, monkeypatch, look):
    (run,) = runs(tmp_path / "h", 1)
    closed, access, is_file = run.with_name(f"{run.name}-closed"), os.access, Path.is_file
    closed.mkdir()

    def refuse(path):
        if closed in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode: path != closed and access(path, mode))
    assert [problem.reason for problem in look(run.parent)] == [f"{closed}: cannot be read: permission denied"]


def test_a_table_of_another_user_is_no_damage(tmp_path, monkeypatch):
    (run,) = runs(tmp_path / "h", 1)

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path / "requests.parquet"))

    monkeypatch.setattr("specbench.harness.judge.stored.read_run", refuse)
    (problem,) = read_runs([run])[1]
    assert problem.reason == f"{run}: cannot be read: Permission denied ({run / 'requests.parquet'})"


def test_series_by_workload_arm_and_metric(tmp_path):
    made = runs(tmp_path / "made", 3)
    made.append(make_run(tmp_path / "made", Machine(noise_seed=9, sha=f"{1:040x}", **SMALL)))  # measured again
    made.append(make_run(tmp_path / "made", Machine(changes=(("workload.sha256", "ee" * 32),), **SMALL)))
    for run in made:
        add_run(tmp_path / "h", run)
    series = build_series(read_history(tmp_path / "h").points)
    keys = {(s.case, s.arm, s.metric) for s in series}
    assert len(keys) == len(series) and len({s.case for s in series}) == 2
    (step,) = [s for s in series if (s.arm, s.metric) == ("eagle:k=4", "step_ms") and len(s.commits) == 3]
    assert {c.commit: c.num_runs for c in step.commits}[f"{1:040x}"] == 2
    assert {s.metric for s in series} == {"step_ms", "tokens_per_step", "tpot_ms", "tps", "ttft_ms", "syncs_per_round"}


def test_an_option_that_is_not_used_does_not_rename_a_series(tmp_path, monkeypatch):
    (run,) = [read_run(path) for path in runs(tmp_path / "made", 1)]
    before = {point.case for point in points_of(run)}
    keys = points.comparison_keys(run.record)
    for value, same in (("none", True), ("7", False)):
        later = {**keys, "sampling": {**keys["sampling"], "an option of tomorrow": value}}
        monkeypatch.setattr(points, "comparison_keys", lambda record, later=later: later)
        assert ({point.case for point in points_of(run)} == before) == same


def test_a_moved_history_names_its_runs_where_they_are(tmp_path):
    for run in runs(tmp_path / "made", 2):
        add_run(tmp_path / "h", run)
    read_history(tmp_path / "h")
    (tmp_path / "h").rename(tmp_path / "moved")
    found = read_history(tmp_path / "moved")
    assert {p.path for p in found.points} == {str(path) for path in (tmp_path / "moved" / "runs").iterdir()}


def test_other_models_of_one_name_are_other_series(tmp_path):
    plain = ModelRecord(name="toy-model", dtype="bfloat16", device="cpu", num_layers=30, synthetic=False)
    for n, change in enumerate(({}, {"dtype": "float32"}, {"num_layers": 2, "synthetic": True})):
        model = (("model", replace(plain, **change)),)
        add_run(tmp_path / "h", make_run(tmp_path / "made", Machine(noise_seed=n, changes=model, **SMALL)))
    series = build_series(read_history(tmp_path / "h").points)
    texts = {s.case_text.split(", ", 2)[2] for s in series}
    assert texts == {"bfloat16, cpu, 30 layers", "float32, cpu, 30 layers", "bfloat16, cpu, 2 layers, random weights"}
    assert {len(s.commits) for s in series} == {1}


def test_switches_that_a_label_does_not_tell_are_other_series(tmp_path):
    """`--sync multi` holds for all arms and stands in no label."""

    def config(**engine):
        arms = (
            ArmConfig(label="no-spec", strategy="no-spec"),
            ArmConfig(label="eagle:k=4", strategy="eagle", options={"k": "4"}, engine=engine),
        )
        return (("config", RunConfig(arms=arms, dataset_name="random")),)

    for n, changes in enumerate((config(), config(), config(sync="multi"))):
        add_run(tmp_path / "h", make_run(tmp_path / "made", Machine(noise_seed=n, sha=f"{n:040x}", changes=changes)))
    series = build_series(read_history(tmp_path / "h").points)
    counts = {s.arm: len(s.commits) for s in series if s.metric == "step_ms"}
    assert counts == {"no-spec": 3, "eagle:k=4": 2, "eagle:k=4,sync=multi": 1}
    alone = build_series(p for p in read_history(tmp_path / "h").points if p.commit == f"{2:040x}")
    assert {s.arm for s in alone} == {"no-spec", "eagle:k=4"}
    for s in (s for s in (*series, *alone) if "multi" in s.arm + s.alias):
        for told in ("eagle:k=4", "eagle:k=4,sync=multi", "no-spec"):
            known = accepted_commits([Accepted(commit=f"{2:040x}", arm=told)], s)
            assert bool(known) == (told != "no-spec")


def test_machines_that_take_turns_have_series_of_their_own(tmp_path):
    """Two kinds of runners; one that replaces another goes on in the same series."""
    cpu = "environment.hardware.cpu.model"
    for n in range(4):
        machine = Machine(noise_seed=n, sha=f"{n:040x}", changes=((cpu, f"cpu {n % 2}"),), **SMALL)
        add_run(tmp_path / "turns", _dated(make_run(tmp_path / "made", machine), n))
        machine = Machine(noise_seed=n, sha=f"{n:040x}", changes=((cpu, f"cpu {n // 2}"),), **SMALL)
        add_run(tmp_path / "replaced", _dated(make_run(tmp_path / "made", machine), n))
    turns = [s for s in build_series(read_history(tmp_path / "turns").points) if s.metric == "step_ms"]
    assert sorted((s.arm, len(s.commits)) for s in turns) == [("eagle:k=4", 2)] * 2 + [("no-spec", 2)] * 2
    assert all(len({c.fingerprint for c in s.commits}) == 1 for s in turns) and len({s.case for s in turns}) == 2
    assert {s.case_text.partition(", on ")[2].split(",")[0] for s in turns} == {"CPU cpu 0", "CPU cpu 1"}
    one = [s for s in build_series(read_history(tmp_path / "replaced").points) if s.metric == "step_ms"]
    assert [len(s.commits) for s in one] == [4, 4] and len({s.case for s in one}) == 1


def _dated(run: Path, n: int) -> Path:
    raw = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**raw, "started_utc": f"2026-01-01T00:00:0{n}Z"}))
    return run


def test_sides_of_an_experiment_are_no_series(tmp_path):
    made = experiment(tmp_path / "made", num_blocks=2)
    added = add_run(tmp_path / "h", made.path)
    found = read_history(tmp_path / "h")
    assert added.is_experiment and added.path.is_dir() and not found.points and not found.problems


def test_local_changes_are_another_commit(tmp_path):
    """Those of older runs, whose hash is not known, are one more; two runs of the same changes are one point."""
    states = [(), *((("git.dirty", True), ("git.changes", changes)) for changes in (None, "1a", "2b", "2b"))]
    for changes in states:
        add_run(tmp_path / "h", *runs(tmp_path / "made", 1, changes=changes))
    series = build_series(read_history(tmp_path / "h").points)
    commit = "0" * 40
    numbers = {commit: 1, f"{commit}+": 1, f"{commit}+1a": 1, f"{commit}+2b": 2}
    assert series and all({c.commit: c.num_runs for c in one.commits} == numbers for one in series)


def test_accepting_local_changes(tmp_path):
    """By their hash, as tables show it; the commit alone means all of its changes, the start of several is refused."""
    local = (("git.dirty", True), ("git.changes", "1a2b3c4d5e6f7890"))
    for run in runs(tmp_path / "made", 2, changes=local):
        add_run(tmp_path / "h", run)
    points, commit = read_history(tmp_path / "h").points, f"{1:040x}"
    accept(tmp_path / "h", Accepted(commit=f"{commit}+1a2b3c4d"), points)
    of_any = next(iter(build_series(points)))
    assert accepted_commits(read_accepted(tmp_path / "h"), of_any) == [f"{commit}+1a2b3c4d"]
    assert is_named(f"{commit}+1a2b3c4d5e6f7890", [f"{commit[:39]}+1a2b3c4d"]) and is_named(f"{commit}+1a", [commit])
    assert not is_named(f"{commit}+1a", [f"{commit}+2b"]) and not is_named(commit, [f"{commit}+"])
    with pytest.raises(ValueError, match="start of several commits"):
        accept(tmp_path / "h", Accepted(commit="0000000"), points)


def test_accepting(tmp_path):
    for run in runs(tmp_path / "made", 2):
        add_run(tmp_path / "h", run)
    points = read_history(tmp_path / "h").points
    note = 'larger head "x" \\ \x7f <b>😀'
    accept(tmp_path / "h", Accepted(commit=f"{1:040x}", metric="step_ms", note=note), points)
    accept(tmp_path / "h", Accepted(commit=f"{0:040x}", arm="eagle:k=4"), points)
    stored = read_accepted(tmp_path / "h")
    assert [a.note for a in stored] == [note, ""] and all(a.utc for a in stored)
    series = {(s.arm, s.metric): s for s in build_series(points)}
    assert accepted_commits(stored, series["no-spec", "step_ms"]) == [f"{1:040x}"]
    assert accepted_commits(stored, series["eagle:k=4", "tps"]) == [f"{0:040x}"]
    with pytest.raises(ValueError, match="'fffffff' has no point here; the newest that have: 000000000000"):
        accept(tmp_path / "h", Accepted(commit="fffffff"), points)
    with pytest.raises(ValueError, match="arm: 'eagle' has no point here; allowed: no-spec, eagle:k=4"):
        accept(tmp_path / "h", Accepted(commit=f"{1:040x}", arm="eagle"), points)
    with pytest.raises(ValueError, match="start of several commits"):
        accept(tmp_path / "h", Accepted(commit="0000000"), points)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[acepted]]\n", "did you mean 'accepted'"),
        ('[[accepted]]\ncomit = "1234567"\n', "did you mean 'commit'"),
        ('[[accepted]]\ncommit = "12"\n', "at least 7"),
        ('[[accepted]]\ncommit = "1234567"\nmetric = "stepms"\n', "did you mean 'step_ms'"),
        ("[[accepted\n", "history.toml"),
    ],
)
def test_a_wrong_history_toml_is_named(tmp_path, text, message):
    (tmp_path / "history.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_accepted(tmp_path)


def test_a_new_run_in_an_old_history_is_of_the_same_machine(tmp_path):
    """Older versions hashed more into the machine: what they cached is computed anew, with every other run."""
    first, second = runs(tmp_path / "made", 2)
    add_run(tmp_path / "h", first)
    read_history(tmp_path / "h")
    index = json.loads((tmp_path / "h" / INDEX).read_text())
    for entry in index["runs"].values():
        entry["points"] = [{**point, "fingerprint": "of hardware and schema"} for point in entry["points"]]
    (tmp_path / "h" / INDEX).write_text(json.dumps({**index, "schema": "specbench.history-index/2"}))
    add_run(tmp_path / "h", second)
    points = read_history(tmp_path / "h").points
    assert {p.run_id for p in points} == {first.name, second.name} and len({p.fingerprint for p in points}) == 1


def test_a_run_of_an_older_schema_is_of_the_same_machine(tmp_path):
    """A stored run, as specbench.run/1 and as this version writes it."""
    stored = next((Path(__file__).parents[4] / "benchmarks" / "runs").glob("h200/*crossover*/runs/*"))
    assert json.loads((stored / "run.json").read_text())["schema"] == "specbench.run/1"
    again = tmp_path / "again"
    shutil.copytree(stored, again)
    write_document(again / "run.json", read_run(stored).record)
    old, new = (points_of(read_run(path)) for path in (stored, again))
    assert old and [replace(point, path=str(stored)) for point in new] == old


def test_runs_of_a_commit_that_were_driven_differently_are_not_one_value(tmp_path):
    points = []
    for n, how in enumerate(("in process", "HTTP", "HTTP")):
        arm = ArmRecord(label="no-spec", strategy="no-spec", config=ArmSetup(driven=how))
        machine = Machine(noise_seed=n, changes=(("arms", (arm,)),), **SMALL)
        points += points_of(read_run(make_run(tmp_path, machine, arms=("no-spec",))))
    (found,) = (one for one in build_series(points) if one.metric == "step_ms")
    assert {commit.driven: commit.num_runs for commit in found.commits} == {"in process": 1, "HTTP": 2}


HOSTILE = {
    "deep": lambda raw: "[" * 100_000,
    "arms": lambda raw: json.dumps({**raw, "arms": 5}),
    "null arm": lambda raw: json.dumps({**raw, "arms": [None]}),
    "no label": lambda raw: json.dumps({**raw, "arms": [{"strategy": "x"}]}),
    "half a pair": lambda raw: json.dumps({**raw, "label": "\udfff", "command": "\udfff"}),
    "workload": lambda raw: json.dumps({**raw, "workload": "x"}),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_one_bad_run_is_named_and_the_others_are_read(tmp_path, case):
    good, bad = runs(tmp_path / "h" / "runs", 2)
    raw = json.loads((bad / "run.json").read_text())
    (bad / "run.json").write_text(HOSTILE[case](raw))
    found = read_history(tmp_path / "h")
    assert {point.run_id for point in found.points} == {good.name}
    (problem,) = found.problems
    assert problem.path == str(bad) and bad.name in problem.reason and "\n" not in problem.reason
    read, problems = read_runs([bad, good])
    assert [run.path for run in read] == [good] and [one.path for one in problems] == [str(bad)]


def test_an_error_that_nobody_foresaw_is_a_problem_too(tmp_path, monkeypatch):
    good, bad = runs(tmp_path / "h" / "runs", 2)
    real = store.points_of

    def points_of_good(run):
        if run.path == bad:
            raise KeyError("tps")
        return real(run)

    monkeypatch.setattr(store, "points_of", points_of_good)
    found = read_history(tmp_path / "h")
    assert {point.run_id for point in found.points} == {good.name}
    assert found.problems[0].reason == f"{bad}: damaged, or of another version (KeyError: 'tps')"
