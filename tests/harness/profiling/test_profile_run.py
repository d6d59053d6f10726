"""`specbench profile run` from its options to the run directory, with a fake nsys in the place of the real one."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest
from profiling.synthetic import Synth, write_nsys
from typer.testing import CliRunner

from specbench.harness.cli.main import app
from specbench.harness.experiments import profile as profile_experiment
from specbench.harness.profiling.profile_file import read_profile
from specbench.harness.profiling.profile_run import arm_folder

ROOT = Path(__file__).resolve().parents[3]
TOY = (
    "--load-format dummy --model toy --dtype float32 --dataset-name random --random-input-len 12 --num-prompts 3 "
    "--warmup-max-s 0.02 --max-model-len 256 --max-concurrency 2 --rounds 5"
).split()
SECRET = "hunter2-of-the-environment"

# Says what it was asked, runs the program without a GPU's calls, and leaves what FAKE says.
FAKE_NSYS = """#!{python}
import json, os, shutil, sys
from pathlib import Path
if sys.argv[1:] == ["--version"]:
    print("NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0"); sys.exit()
Path(os.environ["FAKE_ARGV"]).write_text(json.dumps(sys.argv))
output = next(w.partition("=")[2] for w in sys.argv if w.startswith("--output="))
print("Collecting data...", flush=True)
fake = os.environ["FAKE"]
if fake == "no permission":
    print("ERROR: the user may not profile", file=sys.stderr); sys.exit(1)
from specbench.harness.profiling import child, job
given = Path(sys.argv[-1])
raw = json.loads(given.read_text())
twin = given.with_name("as-run.json")
twin.write_text(json.dumps(raw | {{"tool": "none"}}))
code = child.main([str(twin)])
folder = Path(raw["folder"])
if code == 0:
    report = json.loads((folder / job.REPORT).read_text())
    (folder / job.REPORT).write_text(json.dumps(report | {{"device": "cuda"}}))
    (folder / "nodes.json").write_text("[]")
    if fake == "no importer":
        Path(output + ".qdstrm").write_bytes(b"raw")
    else:
        shutil.copy(os.environ["FAKE_TRACE"], output + ".sqlite")
sys.exit(code)
"""


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / ".ns"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def nsys(tmp_path, monkeypatch):
    """Installs the fake, and lets the command believe in a GPU; returns where its arguments are found."""

    def install(fake: str = "ok") -> Path:
        script = tmp_path / "bin" / "nsys"
        script.parent.mkdir()
        script.write_text(FAKE_NSYS.format(python=sys.executable))
        script.chmod(0o755)
        trace = write_nsys(tmp_path / "fake.sqlite", _rounds(), extra_sql=_environment_rows())
        for name, value in {
            "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}",
            "FAKE": fake,
            "FAKE_ARGV": str(tmp_path / "argv.json"),
            "FAKE_TRACE": str(trace),
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(profile_experiment, "pick_device", lambda name: type("Device", (), {"type": "cuda"}))
        return tmp_path / "argv.json"

    return install


def _rounds() -> Synth:
    trace = Synth()
    for step in range(6):
        with trace.range(f"specbench:step {step}"):
            for phase, kernels in (("advance", 1), ("verify", 4), ("accept", 2)):
                with trace.range(f"specbench:{phase}"):
                    for index in range(kernels):
                        trace.launch(f"{phase}_kernel_{index}", 20_000)
        with trace.range("specbench:status"):
            trace.sync("cudaEventSynchronize")
    return trace


def _environment_rows() -> str:
    return f"""
        DROP TABLE IF EXISTS TARGET_INFO_SYSTEM_ENV;
        CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT,
            nameEnum INTEGER, value TEXT);
        INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, 'Environment', 'DeviceEnvironment', 1, 'TOKEN={SECRET}');
    """


def _call(*words):
    result = CliRunner().invoke(app, ["profile", "run", *map(str, words)], prog_name="specbench")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def _only(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_an_arm_under_nsys_leaves_its_profile_and_no_speed(tmp_path, nsys):
    argv = nsys()
    result = _call("-s", "no-spec", *TOY, "--output-dir", tmp_path / "runs")
    assert result.exit_code == 0, result.stderr
    run = _only(tmp_path / "runs")
    raw = json.loads((run / "run.json").read_text())
    assert raw["profile"] and raw["status"] == "complete" and raw["results"] is None
    assert raw["workload"]["sha256"] and raw["arms"][0]["status"] == "ok"
    assert not list(run.glob("*.parquet")) and not (run / "parts").exists()
    folder = run / "profile" / arm_folder("no-spec")
    kept = {"profile.json", "trace.sqlite", "nodes.json", "engine.json", "command.txt", "job.json", "log.txt"}
    assert kept <= {p.name for p in folder.iterdir()}
    assert SECRET.encode() not in (folder / "trace.sqlite").read_bytes()

    profile = read_profile(folder)
    assert profile.subject is not None and profile.subject.arm == "no-spec"
    assert profile.subject.claimed_parts == {"target": "none"} and profile.subject.batch_size == 2
    assert profile.subject.engine_syncs_per_round == 1 == profile.syncs_per_round
    assert profile.graph.verdict == "no claim"
    assert profile.slow_down is not None and profile.slow_down.unprofiled_round_ns > 0

    ran = json.loads(argv.read_text())
    shown = list(profile.subject.profiler_argv or ())
    assert "--cuda-graph-trace=node" in ran and "--capture-range-end=stop" in ran
    assert shlex.join(shown) == (folder / "command.txt").read_text().strip()
    # As it was run, but for paths of this installation and the place of the unredacted report.
    assert shown[0] == "nsys" and sys.executable in ran and "python" in shown and sys.executable not in shown
    assert f"--output={folder / 'trace'}" in shown
    assert "slow-down" in result.stdout
    assert (run / "profile.html").exists()


@pytest.mark.parametrize(("claim", "code", "verdict"), [("verify=full", 1, "void"), ("verify=piecewise", 1, "void")])
def test_what_is_claimed_decides_the_exit_code(tmp_path, nsys, claim, code, verdict):
    nsys()
    result = _call("-s", "no-spec", *TOY, "--no-twin", "--claim", claim, "--output-dir", tmp_path / "runs")
    assert result.exit_code == code, result.stderr
    profile = read_profile(_only(tmp_path / "runs") / "profile" / arm_folder("no-spec"))
    assert profile.graph.verdict == verdict and profile.subject.claimed_parts["verify"] in claim


def test_rules_of_the_user_are_read_before_the_shipped_ones(tmp_path, nsys):
    nsys()
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\npattern = "specbench:advance"\nphase = "accept"\n')
    words = ["-s", "no-spec", *TOY, "--no-twin", "--rules", rules, "--output-dir", tmp_path / "runs"]
    result = _call(*words)
    assert result.exit_code == 0, result.stderr
    phases = {p.phase for p in read_profile(_only(tmp_path / "runs") / "profile" / arm_folder("no-spec")).phases}
    assert "accept" in phases and "advance" not in phases


@pytest.mark.parametrize("more", [[], ["--print-command"]], ids=["run", "printed"])
def test_rules_that_cannot_be_read_are_refused_before_anything_runs(tmp_path, more):
    (tmp_path / "rules.toml").write_text('[[rule]]\npattern = "x"\nphase = "dreaming"\n')
    words = ["-s", "no-spec", *TOY, "--rules", tmp_path / "rules.toml", *more, "--output-dir", tmp_path / "runs"]
    result = _call(*words)
    assert result.exit_code == 2 and "phase 'dreaming' of 'x'; allowed:" in result.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("fake", "what"),
    [
        ("no importer", "importer is missing or failed"),
        ("no permission", "nsys ended with exit code 1. It said: Collecting data... | ERROR: the user may not profile"),
    ],
)
def test_an_arm_that_nsys_fails_on_is_stored_with_what_it_said(tmp_path, nsys, fake, what):
    nsys(fake)
    result = _call("-s", "no-spec", *TOY, "--no-twin", "--output-dir", tmp_path / "runs")
    assert result.exit_code == 1 and what in result.stderr
    raw = json.loads((_only(tmp_path / "runs") / "run.json").read_text())
    assert raw["status"] == "failed"
    assert raw["arms"][0]["status"] == "failed" and what in raw["arms"][0]["error"]


def test_a_trace_without_rounds_fails_its_arm(tmp_path, nsys):
    nsys()
    os.environ["FAKE_TRACE"] = str(write_nsys(tmp_path / "empty.sqlite", Synth()))
    result = _call("-s", "no-spec", *TOY, "--no-twin", "--output-dir", tmp_path / "runs")
    assert result.exit_code == 1 and "cannot be analysed: trace:" in result.stderr


def test_bad_input_of_the_process_ends_the_command_in_its_own_words(tmp_path, nsys):
    nsys()
    result = _call("-s", "eagle:k=2,head=/nowhere", *TOY, "--output-dir", tmp_path / "runs")
    assert result.exit_code == 2 and "/nowhere" in result.stderr
    assert len(result.stderr.strip().splitlines()[-1]) < 300 and "Traceback" not in result.stderr


def test_on_a_cpu_the_torch_profiler_runs_and_says_that_there_is_no_gpu(tmp_path):
    result = _call("-s", "eagle:k=2,head=random", *TOY, "--output-dir", tmp_path / "runs")
    assert result.exit_code == 0, result.stderr
    assert "no GPU" in result.stdout and "draft_first" in result.stdout and "slow-down" in result.stdout
    folder = _only(tmp_path / "runs") / "profile" / arm_folder("eagle:k=2,head=random")
    assert (folder / "trace.json.gz").stat().st_size > 1000 and not (folder / "profile.json").exists()
    report = json.loads((folder / "engine.json").read_text())
    assert report["device"] == "cpu" and len(report["rounds"]["round_ns"]) == 5
    assert report["subject"]["claimed_parts"] == {"target": "none", "first": "none", "later": "none"}


def test_the_printed_command_is_whole_and_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    at = TOY.index("--max-concurrency")
    toy = [*TOY[:at], *TOY[at + 2 :], "--batch-sizes", "1,2"]
    words = ["-s", "no-spec", "-s", "eagle:k=2,head=random", *toy, "--print-command"]
    result = _call(*words)
    assert result.exit_code == 0 and not list(tmp_path.iterdir()), result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 4
    for line, (arm, size) in zip(
        lines, [(a, n) for n in (1, 2) for a in ("no-spec", "eagle:k=2,head=random")], strict=True
    ):
        argv = shlex.split(line.partition(" && ")[2])
        assert argv[:2] == ["nsys", "profile"] and "--capture-range=cudaProfilerApi" in argv
        job = json.loads(argv[-1])
        assert [a["label"] for a in job["config"]["arms"]] == [arm]
        assert (job["config"]["max_concurrency"], job["num_rounds"], job["tool"]) == (size, 5, "nsys")


def test_a_printed_torch_command_can_be_run_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    (line,) = _call("-s", "no-spec", *TOY, "--tool", "torch", "--print-command").stdout.splitlines()
    assert os.system(f"{line} 2>/dev/null") == 0
    folder = _only(tmp_path)
    assert {p.name for p in folder.iterdir()} == {"engine.json", "nodes.json", "trace.json.gz"}


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--tool", "perf"], "tool: 'perf' is not known; allowed: auto, nsys, torch"),
        (["--tool", "nsys"], "the device is cpu; use --tool torch"),
        (["--tool", "perf", "--print-command"], "tool: 'perf' is not known; allowed: auto, nsys, torch"),
        (["--rounds", "2"], "rounds: 2 is not allowed; allowed: 3 or more"),
        (["--rounds", "2", "--print-command"], "rounds: 2 is not allowed; allowed: 3 or more"),
        (["--rounds", "4000"], "rounds: 4000 are not allowed"),
        (["--claim", "target=full"], "claim: 'target=full' is not allowed; allowed: PART=MODE"),
        (["-s", "no-such"], "no-such"),
        (["-s", "no-such", "--print-command"], "strategy: 'no-such' is not known"),
        (["-s", "ngram:k=99", "--print-command"], "k=99 is not allowed"),
        (["-s", "no-spec", "--graph", "one"], "graph"),
        (["--max-concurrency", "0"], "max_concurrency: 0 is not allowed"),
        (["--resume", "x"], "No such option"),
        (["--certify-graphs"], "No such option"),
    ],
)
def test_bad_input_is_refused_in_one_line_and_leaves_nothing(tmp_path, words, what):
    base = [] if "-s" in words else ["-s", "no-spec"]
    result = _call(*base, *TOY, *words, "--output-dir", tmp_path / "runs")
    assert result.exit_code == 2 and what in result.stderr
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


def test_a_run_of_profiles_is_no_run_with_figures(tmp_path):
    result = _call("-s", "no-spec", *TOY, "--no-twin", "--output-dir", tmp_path / "runs")
    run = _only(tmp_path / "runs")
    assert result.exit_code == 0
    for words in (["show", run], ["run", "--resume", run]):
        refused = CliRunner().invoke(app, [str(w) for w in words], prog_name="specbench")
        assert refused.exit_code == 2 and "contains profiles and no figures" in refused.stderr


def test_folders_of_arms_are_readable_and_distinct():
    names = [arm_folder(label) for label in ("eagle:k=4", "eagle k=4", "é", "ü", "a" * 200)]
    assert len(set(names)) == 5 and names[0].startswith("eagle-k=4-") and all(len(n) < 80 for n in names)
