"""The workflow that is ready to copy, and its policies: valid, safe, and made of commands that exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from specbench.harness.cli.main import app
from specbench.harness.experiments.ab_sides import parse_side, side_config
from specbench.harness.judge.policy import read_policy
from specbench.reports.experiments.gate_report import marker

TEMPLATES = Path(__file__).resolve().parents[2] / "reports" / "templates"
yaml = pytest.importorskip("yaml")


@pytest.fixture(scope="module")
def text() -> str:
    return (TEMPLATES / "specbench.yml").read_text()


@pytest.fixture(scope="module")
def workflow(text) -> dict[Any, Any]:
    return yaml.safe_load(text)


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
    command: Any = typer.main.get_command(app)
    return command.commands[words[0]].make_context(f"specbench {words[0]}", list(words[1:]))


def test_it_is_a_workflow_of_two_jobs(workflow):
    assert set(workflow) == {
        "name",
        True,
        "permissions",
        "concurrency",
        "env",
        "jobs",
    }  # True: the key `on` of YAML 1.1
    assert set(workflow[True]) == {"pull_request", "workflow_dispatch"}
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


def test_actions_are_pinned_to_commits_whose_version_is_said(text):
    """A tag can be moved to other code."""
    used = re.findall(r"uses: (.*)", text)
    assert len(used) == 5 and all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line) for line in used)


CHECKS = {
    "zizmor": ["--offline", "--no-config", "--persona", "pedantic"],
    "check-jsonschema": ["--builtin-schema", "vendor.github-workflows"],
}


@pytest.mark.parametrize("program", CHECKS)
def test_other_peoples_checks_find_nothing(program):
    """`pip install -e '.[dev]'` brings both."""
    words = [str(Path(sys.executable).with_name(program)), *CHECKS[program], str(TEMPLATES / "specbench.yml")]
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


def test_every_command_is_parsed_by_our_own_command_line(workflow):
    found = commands(workflow)
    assert [words[0] for words in found] == ["run", "gate", "ab", "gate", "report"]
    for words in found:
        ctx = parsed(words)
        assert words[0] == "ab" or not ctx.args
    (ab,) = [parsed(words) for words in found if words[0] == "ab"]
    assert (ab.params["ref_a"], ab.params["ref_b"], ab.params["checkout"]) == ("HEAD^", "HEAD", ".")
    assert ab.params["blocks"] >= 6
    config = side_config(parse_side("B", "", "HEAD", ab.args))
    assert config.max_concurrency == 1 and config.arms[0].strategy == "eagle"


def test_gates_read_what_the_measurements_wrote(workflow):
    found = {words[0]: parsed(words) for words in commands(workflow) if words[0] in ("run", "ab")}
    gates = [parsed(words) for words in commands(workflow) if words[0] == "gate"]
    folders = [str(found[name].params["output_dir"]) for name in ("run", "ab")]
    assert [str(gate.params["run"]) for gate in gates] == [f"{folder}/*" for folder in folders]
    assert all(gate.params["github"] for gate in gates) and not any(gate.params["against"] for gate in gates)
    assert len({gate.params["comment"] for gate in gates} | {gate.params["junit"] for gate in gates}) == 4


def test_its_policies_can_be_read(workflow):
    gates = [parsed(words) for words in commands(workflow) if words[0] == "gate"]
    run, ab = (read_policy(TEMPLATES / gate.params["policy"].name) for gate in gates)
    assert not run.timed and {name for name, _ in ab.timed} == {"step_ms", "tpot_ms", "tokens_per_step"}
    assert run.suite != ab.suite, "each comment is found again by its suite"


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
    gates = [parsed(words) for words in commands(workflow) if words[0] == "gate"]
    posted = set(re.findall(r"'specbench/(comment[\w-]*\.md)'", text))
    assert posted == {str(gate.params["comment"]) for gate in gates}
