"""`compare`, `gate`, `history` and `import` as commands: exit codes, files, speed, no torch."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ab_samples import experiment
from compare_samples import Machine, make_run
from machine_pace import slower
from typer.testing import CliRunner

from specbench.harness.cli.main import app
from specbench.harness.run.run_lock import run_lock
from specbench.harness.store.run_directory import RunDirectory

ROOT = Path(__file__).resolve().parents[3]
POLICY = """
suite = "cpu-small"
[gate.syncs_per_round]
max = 1
[gate.graph_share]
min = "99%"
[gate.step_ms]
min_effect = "1%"
[gate.tokens_per_step]
"""


pytestmark = pytest.mark.usefixtures("quiet_machine")


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    machines = {
        "base": Machine(noise_seed=1),
        "same": Machine(noise_seed=2),
        "slow": Machine(noise_seed=3, step_factor=1.03),
        "other": Machine(noise_seed=4, changes=(("environment.hardware.cpu.model", "Another CPU"),)),
    }
    paths = {name: make_run(folder, machine, label=name) for name, machine in machines.items()}
    paths["policy"] = folder / "specbench.toml"
    paths["policy"].write_text(POLICY)
    return paths


def gate(made, name, *more):
    return call("gate", made[name], "--against", made["base"], "--policy", made["policy"], *more)


def test_gate_exit_codes(made, tmp_path):
    assert gate(made, "same").exit_code == 0
    assert gate(made, "slow").exit_code == 1
    assert gate(made, "other").exit_code == 5
    assert gate(made, "other", "--allow-mismatch").exit_code == 4, "times of other hardware have no common noise floor"
    assert gate(made, "base").exit_code == 2
    bad = tmp_path / "bad.toml"
    bad.write_text("[gate.step_msec]\n")
    found = call("gate", made["same"], "--policy", bad)
    assert found.exit_code == 2 and "did you mean 'step_ms'" in found.output
    assert call("gate", made["same"], "--policy", tmp_path / "none.toml").exit_code == 2
    assert call("gate", tmp_path, "--policy", made["policy"]).exit_code == 2


def test_gate_writes_what_ci_reads(made, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    junit, comment = tmp_path / "deep" / "gate.xml", tmp_path / "comment.md"
    found = gate(made, "slow", "--github", "--junit", junit, "--comment", comment)
    assert "::error title=specbench cpu-small%3A step_ms::" in found.output
    assert comment.read_text().startswith("<!-- specbench:cpu-small -->")
    assert (tmp_path / "summary.md").read_text().strip() == comment.read_text().strip()
    assert "<failure" in junit.read_text()


def test_a_summary_that_cannot_be_written_leaves_the_verdict(made, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    found = gate(made, "slow", "--github")
    assert found.exit_code == 1 and "::error title=specbench cpu-small%3A step_ms::" in found.stdout
    assert found.stderr == f"specbench: warning: cannot write to $GITHUB_STEP_SUMMARY ({tmp_path}): Is a directory\n"


def test_links_and_pipes_are_written_to_and_not_replaced(made, tmp_path):
    link, pipe = tmp_path / "link.md", tmp_path / "pipe.xml"
    link.symlink_to("real.md")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        assert gate(made, "same", "--comment", link, "--junit", pipe).exit_code == 0
        assert b"<testsuite" in os.read(reader, 1 << 16)
    finally:
        os.close(reader)
    assert link.is_symlink() and pipe.is_fifo()
    assert (tmp_path / "real.md").read_text().startswith("<!-- specbench:cpu-small -->")


def test_gate_without_a_noise_floor(made, monkeypatch, tmp_path):
    monkeypatch.setenv("SPECBENCH_CACHE", str(tmp_path / "empty"))
    found = gate(made, "same", "--format", "json")
    results = {r["gate"]: r for r in json.loads(found.stdout)["results"]}
    assert found.exit_code == 4 and results["step_ms"]["status"] == "no data"
    assert "specbench power --aa 10" in results["step_ms"]["reason"]
    shown = call("compare", made["base"], made["slow"])
    assert shown.exit_code == 0 and "regressed" not in shown.stdout and "exploratory" in shown.stdout


def test_gate_and_compare_of_an_ab_run(tmp_path):
    policy = tmp_path / "ab.toml"
    policy.write_text("[gate.step_ms]\n")
    slow, invalid = (
        experiment(tmp_path, change=0.03, num_requests=4, reasons={("A", n): ["throttled"] for n in range(rejected)})
        for rejected in (1, 3)
    )
    assert [call("gate", run.path, "--policy", policy).exit_code for run in (slow, invalid)] == [1, 4]
    tables = [call("compare", run.path).stdout for run in (slow, invalid)]
    assert "regressed" in tables[0] and "regressed" not in tables[1]
    assert "9 blocks" in call("compare", slow.path, "--format", "wide").stdout


def test_gate_json_alone_on_stdout(made):
    found = gate(made, "slow", "--format", "json", "--github")
    plain = json.loads(found.stdout)
    assert plain["exit_code"] == found.exit_code == 1 and "::error" in found.stderr


def test_compare_formats_and_exit_codes(made, tmp_path):
    table = call("compare", made["base"], made["slow"])
    assert table.exit_code == 0 and "regressed" in table.stdout
    assert json.loads(call("compare", made["base"], made["slow"], "--format", "json").stdout)["rows"]
    assert call("compare", made["base"], made["slow"], "--format", "csv").stdout.startswith("run,arm,")
    assert call("compare", made["base"], made["slow"], "--format", "md").stdout.startswith("## ")
    refused = call("compare", made["base"], made["other"])
    assert refused.exit_code == 5 and "Test CPU and Another CPU" in refused.stderr and not refused.stdout
    allowed = call("compare", made["base"], made["other"], "--allow-mismatch")
    assert allowed.exit_code == 0 and "NOT COMPARABLE" in allowed.stdout
    partly = call("compare", made["base"], made["slow"], tmp_path / "nothing")
    assert partly.exit_code == 0 and "problem" in partly.stderr and "regressed" in partly.stdout
    alone = call("compare", made["base"], tmp_path / "nothing")
    assert alone.exit_code == 2 and "step time" in alone.stdout
    assert call("compare", tmp_path / "nothing").exit_code == 2
    for words in (["--format", "xml"], ["--min-effect", "2"], ["--min-effect", "big"], ["--baseline", "x"]):
        assert call("compare", made["base"], made["slow"], *words).exit_code == 2


def test_compare_and_gate_tell_of_a_run_that_is_still_measured(made, tmp_path):
    live = make_run(tmp_path, Machine(noise_seed=5), label="live")
    directory = RunDirectory.open(live)
    directory.put(replace(directory.record, status="running"))
    during, after = f"{live.name}: the run is still being measured", f"{live.name}: the run is not complete"
    for words in (
        ("compare", made["base"], live),
        ("compare", live, made["base"], "--format", "json"),
        ("gate", live, "--against", made["base"], "--policy", made["policy"]),
    ):
        with run_lock(live):
            found = call(*words).stdout
        assert during in found and after not in found
        found = call(*words).stdout  # its process was killed
        assert after in found and during not in found


def test_history_commands(tmp_path):
    history, small = tmp_path / "h", {"num_prompts": 3, "num_rounds": 4, "num_repeats": 1}
    runs = [
        make_run(tmp_path / "r", Machine(noise_seed=n, sha=f"{n}" * 40, step_factor=1.1 if n == 7 else 1, **more))
        for n in range(8)
        for more in [small | {"changes": (("started_utc", f"2026-01-0{n + 1}T00:00:00Z"),)}]
    ]
    added = call("history", "add", history, *runs)
    assert added.exit_code == 0 and added.stdout.count("added") == 8
    assert call("history", "add", history, runs[0]).stdout.startswith("already there")
    partly = call("history", "add", history, runs[0], tmp_path / "none")
    assert partly.exit_code == 2 and "1 of 2 runs were not added" in partly.output
    shown = call("history", "show", history, "--metric", "step_ms", "--arm", "eagle:k=4")
    assert shown.exit_code == 0 and len(re.findall(r"^(\d)\1{11} ", shown.stdout, flags=re.M)) == 8
    assert json.loads(call("history", "show", history, "--format", "json").stdout)["series"]
    suspects = call("history", "suspects", history, "--metric", "step_ms")
    assert (
        suspects.exit_code == 0
        and f"specbench ab -A 'ref:{'6' * 12} eagle:k=4' -B 'ref:{'7' * 12} eagle:k=4'" in suspects.stdout
    )
    plain = json.loads(call("history", "suspects", history, "--metric", "step_ms", "--format", "json").stdout)
    assert {entry["arm"] for entry in plain["series"]} == {"no-spec", "eagle:k=4"}
    accepted = call("history", "accept", history, "7" * 12, "--metric", "step_ms", "--note", "known")
    assert accepted.exit_code == 0
    assert "No suspects." in call("history", "suspects", history, "--metric", "step_ms").stdout
    assert call("history", "show", history, "--metric", "step").exit_code == 2
    assert call("history", "show", history, "--arm", "eagle").exit_code == 2
    assert call("history", "show", tmp_path / "none").exit_code == 2


def test_import_then_show(tmp_path):
    raw = {"duration": 1.0, "completed": 1, "backend": "vllm", "model_id": "m", "date": "20260102-030405"}
    raw |= {"input_lens": [5], "output_lens": [3], "ttfts": [0.1], "itls": [[0.1, 0.1]], "errors": [""]}
    file = tmp_path / "r.json"
    file.write_text(json.dumps(raw))
    done = call("import", file, "-o", tmp_path / "runs")
    assert done.exit_code == 0
    (path,) = (tmp_path / "runs").iterdir()
    assert done.stdout.endswith(f"run directory: {path}\n")
    shown = call("show", path)
    assert shown.exit_code == 0 and "imported: vllm" in shown.stdout and "100.0" in shown.stdout
    broken = tmp_path / "b.json"
    broken.write_text("{}")
    partly = call("import", broken, file, "-o", tmp_path / "runs")  # one run of all files, or none
    assert partly.exit_code == 2 and "b.json: not a result file of a known benchmark" in partly.stderr
    assert list((tmp_path / "runs").iterdir()) == [path]


def in_a_process(made, command: str) -> float:
    """Runs a command and checks that it did not import torch; the processor's time in s."""
    words = {
        "compare": ["compare", made["base"], made["slow"]],
        "gate": ["gate", made["slow"], "--against", made["base"], "--policy", made["policy"]],
    }[command]
    code = (
        "import sys; sys.argv[:] = ['specbench', *sys.argv[1:]]\n"
        "from specbench.harness.cli.main import main\n"
        "try: main()\nexcept SystemExit as end: code = end.code\n"
        "sys.exit(99 if 'torch' in sys.modules else code)"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT / ".ns"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == {"compare": 0, "gate": 1}[command], done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("command", ["compare", "gate"])
def test_without_torch(made, command):
    in_a_process(made, command)


@pytest.mark.timed
@pytest.mark.parametrize("command", ["compare", "gate"])
def test_fast(made, command):
    assert in_a_process(made, command) < 6 * slower()
