"""What a fork of an engine may break, planted in an engine's child: the shipped policy finds each by the right gate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.conftest import _wide_and_colourless, cli, only_run, runs  # noqa: F401
from cli.test_profile_import import kineto
from golden_traces import unpacked
from toy.packages import install
from toy.packages import site as site

POLICY = Path(__file__).resolve().parents[3] / "reports" / "templates" / "specbench-engine.toml"
LOAD = "--engine counting --dataset-name random --random-input-len 4 --random-output-len 82 --num-prompts 4"


Results = dict[tuple[str, str], str]


@pytest.fixture
def measure(cli, runs, only_run, site, monkeypatch):  # noqa: F811
    """Measures base and change in blocks; the run."""
    install(site, "counting-engine", "1", {"specbench.engines": {"counting": "toy.counting_engine:CountingEngine"}})

    def call(base: str, change: str) -> Path:
        more = f"{LOAD} --max-model-len 128 --warmup-max-s 0.02 --blocks 6 --in-process -q".split()
        cli("ab", "-A", f"ngram:k=4{base}", "-B", f"ngram:k=4{change}", *more, "--output-dir", runs)
        return only_run().path

    return call


@pytest.fixture
def judge(cli, tmp_path):  # noqa: F811
    """By the policy that comes with the workflow: the status of each gate, and the exit code."""

    def call(run: Path, without: str = "no gate") -> tuple[Results, int]:
        policy = tmp_path / "policy.toml"
        text = POLICY.read_text().replace("# [gate.", "[gate.")
        policy.write_text("".join(line for line in text.splitlines(keepends=True) if without not in line))
        judged = cli("gate", run, "--policy", policy, "--format", "json")
        results = json.loads(judged.stdout)["results"]
        return {(each["gate"], each["subject"]): each["status"] for each in results}, judged.exit_code

    return call


PLANTED = {
    "slower": {("step_ms", ""), ("tpot_ms", "")},
    "position-3": {("acceptance_by_position", "position 3")},
    "sync": {("syncs_per_round", "")},
    "eager": {("graph_share", "decode rounds")},
    "": set(),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_each_is_caught_by_the_right_gate(measure, judge, fault):
    results, code = judge(measure("", f",fault={fault}" if fault else ""), without="launches")
    assert {gate for gate, status in results.items() if status == "FAILED"} == PLANTED[fault]
    assert set(results.values()) <= {"passed", "FAILED"} and code == (1 if fault else 0), "every gate has data"


def traced(path: Path, *, extra: bool) -> Path:
    """Five rounds; `extra`: with one more launch and one more wait in each."""
    kineto(path)
    trace = json.loads(path.read_text())
    for step in range(5) if extra else ():
        for name, at, number in (("cudaLaunchKernel", 640, 900), ("cudaStreamSynchronize", 660, 950)):
            args = {"correlation": number + step}
            call = {"ph": "X", "pid": 10, "tid": 1, "ts": 1000.0 * step + at, "dur": 4, "args": args}
            trace["traceEvents"].append({**call, "cat": "cuda_runtime", "name": name})
            if name == "cudaLaunchKernel":
                more = {"cat": "kernel", "name": "extra", "tid": 7, "args": {**args, "device": 0, "stream": 7}}
                trace["traceEvents"].append({**call, **more})
    path.write_text(json.dumps(trace))
    return path


def test_a_trace_of_each_side_counts_what_the_child_does_not_tell(cli, measure, judge, tmp_path):  # noqa: F811
    run = measure(",fault=untold", ",fault=untold")
    results, code = judge(run)
    untold = [("syncs_per_round", ""), ("launches_per_round", "trace"), ("graph_share", "decode rounds")]
    assert [results[gate] for gate in untold] == ["no data"] * 3 and code == 4
    for side in "AB":
        trace = traced(tmp_path / f"{side}.json", extra=side == "B")
        assert cli("profile", "import", trace, "-o", run / "profile" / side).exit_code == 0
    results, code = judge(run)
    assert {gate for gate, status in results.items() if status == "FAILED"} == {
        ("syncs_per_round", "trace"),
        ("launches_per_round", "trace"),
    }
    assert results["graph_share", "verification"] == results["graph_share", "drafter pass 1"] == "passed" and code == 1


VLLM = {
    "sync": {("syncs_per_round", "trace")},
    "piecewise": {
        ("launches_per_round", "trace"),
        ("graph_share", "verification"),
        *(("graph_share", f"drafter pass {n}") for n in range(1, 5)),
    },
}


@pytest.mark.parametrize("fault", VLLM)
def test_what_was_planted_in_vllm_on_an_h200_is_caught(cli, measure, judge, tmp_path, fault):  # noqa: F811
    """Traces of vLLM 0.26 as it is, with one more wait for the GPU a step, and with its full graphs off."""
    run = measure(",fault=untold", ",fault=untold")
    for side, name in (("A", "ranges"), ("B", fault)):
        trace = unpacked(f"vllm/runner2-{name}.sqlite.xz", tmp_path)
        assert cli("profile", "import", trace, "-o", run / "profile" / side).exit_code == 0
    results, code = judge(run)
    assert {gate for gate, status in results.items() if status == "FAILED"} == VLLM[fault] and code == 1
