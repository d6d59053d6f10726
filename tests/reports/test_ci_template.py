"""The workflows that are ready to copy, and their policies: valid, safe, and made of commands that exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from toy.workflows import NAMES, TEMPLATES, Workflow, read

from specbench.harness.cli.main import app
from specbench.harness.experiments.ab_sides import parse_side, side_config
from specbench.harness.judge.policy import read_policy
from specbench.harness.spec.arm import parse_arm
from specbench.reports.experiments.gate_report import marker


@pytest.fixture(scope="module", params=NAMES)
def name(request) -> str:
    return request.param


@pytest.fixture
def text(name) -> str:
    return (TEMPLATES / f"{name}.yml").read_text()


@pytest.fixture
def workflow(name) -> Workflow:
    return read(name)


def commands(workflow) -> list[list[str]]:
    """Every `specbench` command of the workflow as the shell would split it, `env` put in."""
    found = []
    for step in (step for job in workflow["jobs"].values() for step in job["steps"] if "run" in step):
        script = step["run"].replace("\\\n", " ")
        for name, value in workflow["env"].items():
            script = re.sub(rf"\$({name}\b|{{{name}}})", value, script)
        for line in script.splitlines():
            words = shlex.split(line.split("||")[0])
            if words[:1] == ["specbench"]:
                found.append(words[1:])
    return found


def parsed(words) -> typer.Context:
    command = typer.main.get_command(app)
    return command.commands[words[0]].make_context(f"specbench {words[0]}", list(words[1:]))


def gates(workflow) -> list[typer.Context]:
    return [parsed(words) for words in commands(workflow) if words[0] == "gate"]


def test_it_is_a_workflow_of_two_jobs(workflow, name):
    assert set(workflow) == {
        "name",
        True,
        "permissions",
        "concurrency",
        "env",
        "jobs",
    }  # True: the key `on` of YAML 1.1
    by_hand = {"workflow_dispatch"} if name != "specbench-head" else set()  # a head's base is the pull request's
    assert set(workflow[True]) == {"pull_request", *by_hand}
    assert set(workflow["jobs"]) == {"gate", "comment"}
    for job in workflow["jobs"].values():
        allowed = {"name", "runs-on", "timeout-minutes", "steps", "needs", "if", "permissions"}
        assert set(job) <= allowed and job["runs-on"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step) and set(step) <= {
                "name",
                "id",
                "if",
                "env",
                "run",
                "uses",
                "with",
            }
    assert set(workflow["jobs"]["comment"].get("needs").split()) <= set(workflow["jobs"])


def test_actions_are_pinned_to_commits_whose_version_is_said(text, name):
    """A tag can be moved to other code."""
    used = re.findall(r"uses: (.*)", text)
    assert len(used) == (6 if name == "specbench-head" else 5)
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line) for line in used)


CHECKS = {
    "zizmor": ["--offline", "--no-config", "--persona", "pedantic"],
    "check-jsonschema": ["--builtin-schema", "vendor.github-workflows"],
}


@pytest.mark.parametrize("program", CHECKS)
def test_other_peoples_checks_find_nothing(program, name):
    """`pip install -e '.[dev]'` brings both."""
    words = [str(Path(sys.executable).with_name(program)), *CHECKS[program], str(TEMPLATES / f"{name}.yml")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_the_job_without_code_of_the_pull_request_may_write(workflow):
    assert workflow["permissions"] == {} and workflow["jobs"]["gate"]["permissions"] == {"contents": "read"}
    assert workflow["jobs"]["comment"]["permissions"] == {"pull-requests": "write"}
    assert not any("checkout" in step.get("uses", "") or "run" in step for step in workflow["jobs"]["comment"]["steps"])


def test_no_text_of_a_pull_request_is_run(workflow):
    """Expressions inside a script would be pasted into it."""
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    scripts = [step["run"] for step in steps if "run" in step] + [
        step.get("with", {}).get("script", "") for step in steps
    ]
    assert not any("${{" in script for script in scripts)
    assert not any("${{" in value for value in workflow["env"].values())


MEASURED = {
    "specbench": ["run", "gate", "ab", "gate", "report", "show"],
    "specbench-engine": ["ab", "gate", "report", "show"],
    "specbench-head": ["check-head", "run", "gate", "report", "show"],
}


def test_every_command_is_parsed_by_our_own_command_line(workflow, name):
    found = commands(workflow)
    assert [words[0] for words in found] == MEASURED[name]
    for words in found:
        assert words[0] == "ab" or not parsed(words).args


def test_this_code_against_its_base():
    (ab,) = [parsed(words) for words in commands(read("specbench")) if words[0] == "ab"]
    assert (ab.params["ref_a"], ab.params["ref_b"], ab.params["checkout"]) == ("HEAD^", "HEAD", ".")
    assert ab.params["blocks"] >= 6
    config = side_config(parse_side("B", "", "HEAD", ab.args))
    assert config.max_concurrency == 1 and config.arms[0].strategy == "eagle"


def test_an_engine_against_its_base():
    (ab,) = [parsed(words) for words in commands(read("specbench-engine")) if words[0] == "ab"]
    assert ab.params["blocks"] >= 6 and ab.params["in_process"]
    assert (ab.params["a"], ab.params["b"]) == ("--engine-ref HEAD^", "--engine-ref HEAD")
    assert "--engine-python" in ab.args and not ab.params["ref_a"] and not ab.params["ref_b"]


def test_a_head_against_that_of_its_base():
    workflow = read("specbench-head")
    (run,) = [parsed(words) for words in commands(workflow) if words[0] == "run"]
    labels = [parse_arm(text).label for text in run.params["strategy"]]
    policy = read_policy(TEMPLATES / "specbench-head.toml")
    assert labels == ["no-spec", policy.baseline, *policy.arms] and run.params["num_repeats"] == 1
    assert [step["with"]["path"] for step in workflow["jobs"]["gate"]["steps"][:2]] == ["change", "base"]


def test_gates_read_what_the_measurements_wrote(workflow):
    found = [parsed(words) for words in commands(workflow) if words[0] in ("run", "ab")]
    folders = [str(measured.params["output_dir"]) for measured in found]
    assert [str(gate.params["run"]) for gate in gates(workflow)] == [f"{folder}/*" for folder in folders]
    assert all(gate.params["github"] for gate in gates(workflow))
    assert not any(gate.params["against"] for gate in gates(workflow))
    files = {gate.params[key] for gate in gates(workflow) for key in ("comment", "junit")}
    assert len(files) == 2 * len(gates(workflow))


def test_its_policies_can_be_read():
    run, ab = (read_policy(TEMPLATES / gate.params["policy"].name) for gate in gates(read("specbench")))
    assert not run.timed and {name for name, _ in ab.timed} == {"step_ms", "tpot_ms", "tokens_per_step"}


def test_each_comment_is_found_again_by_its_suite():
    suites = [read_policy(TEMPLATES / gate.params["policy"].name).suite for name in NAMES for gate in gates(read(name))]
    assert len(set(suites)) == len(suites) == 4


def test_a_comment_without_a_marker_is_not_posted(workflow):
    """An empty first line begins every comment: it would overwrite another one."""
    script = workflow["jobs"]["comment"]["steps"][-1]["with"]["script"]
    assert "startsWith" not in script and "github-actions[bot]" in script
    (pattern,) = re.findall(r"!/(.*)/\.test\(marker\)", script)
    assert script.index(pattern) < script.index("comments.find") < script.index("updateComment")
    suites = ("cpu-small", "a b/c", "--> @x", "\u00fc")
    assert all(re.search(pattern, marker(suite)) for suite in suites)
    assert not any(re.search(pattern, line) for line in ("", "## Results", "<!-- other:x -->", "<!-- specbench: -->"))


def test_comments_that_are_written_are_posted(workflow, text):
    posted = set(re.findall(r"'specbench/(comment[\w-]*\.md)'", text))
    assert posted == {str(gate.params["comment"]) for gate in gates(workflow)}
