import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from run_samples import GIT, begun, chain_block, request, step

from specbench.harness.metrics.run_results import results
from specbench.harness.spec.arm import ArmSetup, parse_arm
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.inputs_record import ModelRecord
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import RUN_SCHEMA, SweepRecord
from specbench.harness.store.schema import arrow_schema, build_table, hash_token_ids
from specbench.harness.store.sweep_directory import SweepDirectory
from specbench.workloads.assets.cache import read_sha256

ROOT = Path(__file__).resolve().parents[3]


def new_run(tmp_path, *labels):
    return RunDirectory.create(tmp_path, "test", begun(*(labels or ("no-spec", "eagle:k=4"))))


def test_create_writes_a_whole_manifest(tmp_path):
    run = RunDirectory.create(tmp_path / "deep" / "er", "my run/x", begun("no-spec"))
    assert re.fullmatch(r"\d{8}T\d{6}Z-my-run-x-[0-9a-f]{8}", run.path.name)
    stored = json.loads((run.path / "run.json").read_text())
    assert stored["schema"] == RUN_SCHEMA and stored["status"] == "running" and stored["run_id"] == run.path.name
    assert stored["command"] == "specbench run --strategy no-spec --label 'it'\"'\"'s'"
    assert stored["git"] == asdict(GIT) and RunDirectory.open(run.path).record == run.record
    assert run.record.arms == (ArmRecord(label="no-spec", strategy="no-spec"),)


def test_arms_need_labels_of_their_own(tmp_path):
    with pytest.raises(ValueError, match="label"):
        RunDirectory.create(tmp_path, "x", begun("a", "a"))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"arms": []}, r"run.json: arms: \[\] is not allowed; allowed: at least one arm"),
        ({"arms": None}, r"run.json: arms: Expected `array`, got `null`"),
        ({"arms": [{"strategy": "x"}]}, r"run.json: arms\[0\]: .*`label`"),
        ({"status": 3.5}, r"run.json: status: Expected `str`"),
        ({"sampling": {"temperature": "warm"}}, r"run.json: sampling.temperature: "),
    ],
)
def test_a_field_of_another_type_is_named(tmp_path, change, named):
    run = new_run(tmp_path)
    file = run.path / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ValueError, match=named):
        RunDirectory.open(run.path)


def test_blocks_are_readable_at_once_and_after_finishing(tmp_path):
    run = new_run(tmp_path)
    run.append("no-spec", 0, **chain_block([0, 0], k=0))
    run.append("eagle:k=4", 0, **chain_block([1, 2]))
    before = RunDirectory.open(run.path)
    assert before.done_blocks() == {("no-spec", 0), ("eagle:k=4", 0)}
    frames = before.frames()
    found = results(run.frames())
    run.finish(found)
    after = RunDirectory.open(run.path)
    assert not (run.path / "parts").exists()
    assert after.record.status == "complete" and after.record.results == found
    assert after.done_blocks() == before.done_blocks()
    for name in ("requests", "steps", "phases"):
        assert getattr(after.frames(), name).equals(getattr(frames, name))
        path = run.path / f"{name}.parquet"
        assert after.record.files[path.name] == read_sha256(path)


def test_failed_block_is_a_row_and_is_tried_again(tmp_path):
    run = new_run(tmp_path)
    run.fail_blocks([("eagle:k=4", 0)], ValueError("no such head"))
    run.finish(None)
    again = RunDirectory.open(run.path)
    assert again.record.status == "failed"
    assert again.failed_blocks() == {("eagle:k=4", 0): "ValueError: no such head"} and again.done_blocks() == set()
    assert [(arm.status, arm.error) for arm in again.record.arms] == [
        ("pending", ""),
        ("failed", "ValueError: no such head"),
    ]
    again.resume(["specbench", "run", "--resume", str(run.path)])
    assert RunDirectory.open(run.path).record.status == "running"
    again.append("eagle:k=4", 0, **chain_block([1]))
    assert again.failed_blocks() == {} and again.done_blocks() == {("eagle:k=4", 0)}
    again.finish(None)
    frames = RunDirectory.open(run.path).frames()
    assert len(frames.requests) == 4 and set(frames.requests["finish_reason"]) == {"length"}
    assert len(again.record.resumes) == 1


def test_interrupted_run_keeps_its_blocks_and_goes_on(tmp_path):
    run = new_run(tmp_path)
    run.append("no-spec", 0, **chain_block([0], k=0))
    run.finish(None, status="interrupted")
    again = RunDirectory.open(run.path)
    assert again.record.status == "interrupted" and again.record.ended_utc
    again.resume([])
    again.append("eagle:k=4", 0, **chain_block([1]))
    assert RunDirectory.open(run.path).done_blocks() == {("no-spec", 0), ("eagle:k=4", 0)}
    again.finish(None)
    assert len(RunDirectory.open(run.path).frames().requests) == 8
    with pytest.raises(ValueError, match="status: 'done' not allowed"):
        again.finish(None, status="done")


def test_labels_that_look_alike_in_file_names_stay_apart(tmp_path):
    labels = ("a|b", "a/b", "a<b>")
    run = new_run(tmp_path, *labels)
    for n, label in enumerate(labels):
        run.append(label, 0, **chain_block([0] * (n + 1), num_requests=1))
    assert run.done_blocks() == {(label, 0) for label in labels}
    counts = run.frames().requests.set_index("arm")["num_output_tokens"].to_dict()
    assert counts == {"a|b": 2, "a/b": 3, "a<b>": 4}


KILLED = """
import os, signal, sys
sys.path[:0] = {paths}
from run_samples import chain_block, begun
from specbench.harness.store import block_store
from specbench.harness.store import run_directory as record
run = record.RunDirectory.create(sys.argv[1], "killed", begun("no-spec", "eagle"))
run.append("no-spec", 0, **chain_block([0, 0], k=0))
write = block_store.write_parquet
def write_then_die(path, table):
    write(path, table)
    if path.name.startswith({fatal!r}):
        os.kill(os.getpid(), signal.SIGKILL)
block_store.write_parquet = write_then_die
run.append("eagle", 0, **chain_block([1, 1]))
run.finish(None)
"""


@pytest.mark.parametrize("fatal", ["steps-", "phases-", "requests-", "requests.parquet", "phases.parquet"])
def test_a_kill_loses_at_most_the_block_being_written(tmp_path, fatal):
    code = KILLED.format(paths=[str(ROOT / ".ns"), str(ROOT / "tests")], fatal=fatal)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    (path,) = tmp_path.iterdir()
    run = RunDirectory.open(path)
    lost = fatal in ("steps-", "phases-")
    assert run.record.status == "running"
    assert run.done_blocks() == {("no-spec", 0)} | (set() if lost else {("eagle", 0)})
    assert set(run.frames().steps["arm"]) == {arm for arm, _ in run.done_blocks()}
    run.append("eagle", 0, **chain_block([1, 1]))
    run.finish(None)
    frames = RunDirectory.open(path).frames()
    assert len(frames.requests) == 2 * 4 and len(frames.steps) == 2 * (3 + 2 + 1 + 3)
    assert frames.steps.groupby(["arm", "step"]).size().max() == 1


def test_open_refuses_what_is_no_run(tmp_path):
    with pytest.raises(ValueError, match="not a run directory"):
        RunDirectory.open(tmp_path)


def test_open_refuses_another_schema(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"schema": "specbench.run/99"}))
    with pytest.raises(ValueError, match=r"run.json: schema 'specbench.run/99'.*specbench.run/2"):
        RunDirectory.open(tmp_path)


def test_open_refuses_a_half_written_manifest(tmp_path):
    run = new_run(tmp_path)
    file = run.path / "run.json"
    file.write_text(file.read_text()[:100])
    with pytest.raises(ValueError, match="run.json: damaged"):
        RunDirectory.open(run.path)


def test_a_damaged_part_is_named(tmp_path):
    run = new_run(tmp_path)
    run.append("no-spec", 0, **chain_block([0]))
    (part,) = (run.path / "parts").glob("steps-*.parquet")
    part.write_bytes(part.read_bytes()[:50])
    with pytest.raises(ValueError, match=re.escape(str(part))):
        run.frames()
    part.unlink()
    with pytest.raises(ValueError, match="missing"):
        run.frames()


def test_unknown_arm_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'medusa'.*no-spec"):
        new_run(tmp_path).append("medusa", 0, [])


def test_notes_and_late_configuration(tmp_path):
    run = new_run(tmp_path)
    run.describe_arm("no-spec", config=ArmSetup(graph="full"), notes=["graph: full instead of one"])
    run.describe_arm("no-spec", notes=["graph: full instead of one"])
    arm = RunDirectory.open(run.path).record.arms[0]
    assert arm.config == ArmSetup(graph="full") and arm.notes == ("graph: full instead of one",)


GOOD = request(0, first_ms=1, last_ms=2, num_output_tokens=2)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({k: v for k, v in GOOD.items() if k != "t_first_ns"}, "requests.t_first_ns: missing"),
        (GOOD | {"tpot": 1}, "unknown columns"),
        (GOOD | {"finish_reason": "eos"}, r"requests.finish_reason: \['eos'\] not allowed"),
        (GOOD | {"num_output_tokens": None}, "requests.num_output_tokens: 1 values are missing"),
        (GOOD | {"num_output_tokens": "two"}, "requests.num_output_tokens: not int32"),
        (GOOD | {"arm": "b"}, "requests.arm: rows of another block"),
    ],
)
def test_rows_that_do_not_fit_are_refused(row, message):
    with pytest.raises(ValueError, match=message):
        build_table("requests", "a", 0, [row])


def test_rows_of_different_shape_are_refused():
    with pytest.raises(ValueError, match="same columns"):
        build_table("requests", "a", 0, [GOOD, GOOD | {"num_preemptions": 1}])


def test_columns_and_rows_give_the_same_table():
    rows = [step(0, 0, 0, 1, k=4, j=2), step(1, 0, 1, 2, k=4, j=1)]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    assert build_table("steps", "a", 0, rows).equals(build_table("steps", "a", 0, columns))


def test_defaults_are_filled_in():
    given = {k: v for k, v in step(0, 0, 0, 1, k=4, j=2).items() if k not in ("draft_depth", "num_syncs")}
    (row,) = build_table("steps", "a", 3, [given]).to_pylist()
    assert (row["arm"], row["repeat"]) == ("a", 3)
    assert (row["draft_depth"], row["num_padded_rows"], row["num_syncs"], row["graph"]) == (4, 5, 0, "none")
    unknown = {k: v for k, v in given.items() if k not in ("num_rows", "num_proposed")}
    (row,) = build_table("steps", "a", 3, [unknown]).to_pylist()
    assert {row[name] for name in ("num_rows", "num_padded_rows", "num_proposed", "draft_depth")} == {None}
    (row,) = build_table("requests", "a", 0, [GOOD]).to_pylist()
    assert row["output_sha256"] == hash_token_ids([7, 7]) and row["error"] == ""


def test_every_column_says_what_it_is():
    for table in ("requests", "steps", "phases"):
        assert all(field.metadata[b"doc"] for field in arrow_schema(table))


def test_what_looks_secret_is_masked_in_command_label_and_name(tmp_path):
    argv = ("specbench", "run", "--model", "/x/user:hunter2@h", "--label", "api-key=hunter2", "--hf-token", "hunter2")
    run = RunDirectory.create(tmp_path, "api-key=hunter2", begun("no-spec", argv=argv))
    run.resume([*argv, "--password", "hunter2"])
    assert "hunter2" not in (run.path / "run.json").read_text() and "hunter2" not in run.path.name
    assert run.record.argv[2:4] == ("--model", "/x/user:[redacted]@h")


@pytest.mark.parametrize("key", ["hf_" + "aB3" * 11, "sk-proj-" + "x_9" * 10, "ghp_" + "Q" * 36, "AKIA" + "Z7" * 8])
def test_a_key_of_a_known_form_is_masked_wherever_it_stands(tmp_path, key):
    argv = ("specbench", "run", "--stop", key, "--engine-command", f"serve {{model}} --with {key}")
    run = RunDirectory.create(tmp_path, "x", begun("no-spec", argv=argv))
    assert key not in json.dumps(run.record.argv) and run.record.argv[3] == "[redacted]"


@pytest.mark.parametrize("word", ["sk-learn", "hf_split", "sk-of-a-benchmark-with-a-long-name", "ghost_of"])
def test_words_that_only_begin_like_a_key_stay(tmp_path, word):
    run = RunDirectory.create(tmp_path, "x", begun("no-spec", argv=("specbench", "run", "--label", word)))
    assert run.record.argv[3] == word


def test_paths_of_a_record_do_not_name_the_users_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "alice"))
    model, data = (str(tmp_path / "alice" / name) for name in ("model", "prompts.jsonl"))
    config = RunConfig(model=model, dataset_name="jsonl", dataset_path=data, arms=(parse_arm("no-spec"),))
    described = ModelRecord(name=model, source=model)
    run = RunDirectory.create(tmp_path / "runs", "x", begun("no-spec", config=config, model=described))
    sweep = SweepRecord(argv=("specbench",), config=config, loads=(1,), arms=())
    directory = SweepDirectory.create(tmp_path / "runs", "x", sweep)
    for path in (run.path / "run.json", directory.path / "sweep.json"):
        assert "alice" not in path.read_text() and json.loads(path.read_text())["config"]["model"] == "~/model"
    opened = RunDirectory.open(run.path)
    assert opened.record == run.record and opened.config_to_go_on() == config
    monkeypatch.setenv("HOME", "/")
    assert RunDirectory.create(tmp_path, "y", begun("no-spec", model=described)).record.model == described


def test_a_stop_string_is_no_path_below_the_users_home(tmp_path, monkeypatch):
    """A run that goes on, and every run of a sweep, stop where the user said."""
    monkeypatch.setenv("HOME", str(tmp_path / "alice"))
    stop = ("~", "~/x", str(tmp_path / "alice"))
    config = RunConfig(arms=(parse_arm("no-spec"),), stop=stop)
    run = RunDirectory.create(tmp_path / "runs", "x", begun("no-spec", config=config))
    assert RunDirectory.open(run.path).config_to_go_on().stop == run.record.measured_config.stop == stop


def test_what_a_kill_left_before_a_rename_goes_when_the_run_goes_on(tmp_path):
    run = new_run(tmp_path)
    run.append("no-spec", 0, **chain_block([0, 0], k=0))
    (part,) = (run.path / "parts").glob("requests-*.parquet")
    left = [run.path / ".run.json.123.tmp", run.path / "parts" / f".{part.name}.77.tmp"]
    kept = [run.path / ".lock", run.path / "notes.1.tmp"]
    for file in (*left, *kept):
        file.write_text("half")
    RunDirectory.open(run.path).resume(["specbench"])
    assert not any(file.exists() for file in left) and all(file.exists() for file in kept) and part.exists()
