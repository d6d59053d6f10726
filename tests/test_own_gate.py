"""`make gate`: which commits are compared, what is said where they cannot be, and when it is red."""

from __future__ import annotations

import importlib.util
import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from toy.timed import check_their_files_say_so

from specbench.harness.cli.main import app
from specbench.harness.experiments.ab_sides import parse_side, side_config
from specbench.harness.judge.policy import read_policy

ROOT = Path(__file__).resolve().parent.parent
_SPEC = importlib.util.spec_from_file_location("own_gate", ROOT / ".ci" / "gate.py")
assert _SPEC is not None and _SPEC.loader is not None
own = importlib.util.module_from_spec(_SPEC)
sys.modules["own_gate"] = own  # dataclasses look their module up there
_SPEC.loader.exec_module(own)

FAKE = """
import json, pathlib, sys
words = sys.argv[1:]
root = pathlib.Path(".")
calls = root / "calls.jsonl"
before = [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []
calls.write_text("".join(json.dumps(call) + "\\n" for call in [*before, words]))
answers = json.loads((root / "answers.json").read_text()).get(words[0], [])
nth = sum(call[0] == words[0] for call in before)
answer = answers[nth] if nth < len(answers) else {}
if words[0] in ("run", "ab") and answer.get("run", True):
    run = root / "runs" / f"{words[0]}-{nth}"
    run.mkdir(parents=True)
    (run / "ab.json").write_text(json.dumps({"blocks": answer.get("blocks", [])}))
    print(f"run directory: {run}")
if words[0] == "report":
    (root / "site").mkdir(exist_ok=True)
if words[0] == "gate":
    pathlib.Path(words[words.index("--comment") + 1]).write_text(f"<!-- {words[1]} -->")
print(answer.get("says", ""), file=sys.stderr)
sys.exit(answer.get("code", 0))
"""


def git(folder: Path, *words: str) -> None:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *words]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def gate(tmp_path, monkeypatch):
    """The gate of a checkout with two commits, over a command that notes its words and answers as it is told."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    root = tmp_path / "checkout"
    root.mkdir()
    git(root, "init", "-q")
    (root / ".gitignore").write_text("runs/\nsite/\n*.json*\n*.py\n")
    (root / "code").write_text("1")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "one")
    git(root, "commit", "-q", "--allow-empty", "-m", "two")
    (root / "fake.py").write_text(FAKE)
    fake = [sys.executable, str(root / "fake.py")]
    made = own.Gate(specbench=fake, pytest=[*fake, "pytest"], site=[*fake, "report"], root=root)
    tell(made)
    return made


def tell(made, /, **answers) -> None:
    (made.root / "answers.json").write_text(json.dumps(answers))


def calls(gate, name: str) -> list[list[str]]:
    lines = (gate.root / "calls.jsonl").read_text().splitlines()
    return [words for words in map(json.loads, lines) if words[0] == name]


def sides(words: list[str]) -> str:
    return shlex.join(words[1:])


def test_the_parent_commit_against_this_one(gate, capsys):
    assert own.main(gate) == 0
    (ab,) = calls(gate, "ab")
    assert ab[1:7] == ["-A", "ref:HEAD~1", "-B", "ref:HEAD", "-s", "eagle:k=4"]
    assert "Times: the parent commit against this one" in capsys.readouterr().out
    assert calls(gate, "history") == [["history", "add", "runs/history", "runs/run-0", "runs/ab-0"]]
    assert [words[1] for words in calls(gate, "gate")] == ["runs/run-0", "runs/ab-0"]
    assert calls(gate, "report") == [["report", "runs/history", "-o", "site"]]
    assert calls(gate, "show") == [["show", "runs/ab-0", "--card", "site/card.png"]]
    assert (gate.root / "site" / "comment.md").read_text() == "<!-- runs/run-0 -->\n<!-- runs/ab-0 -->"


def test_local_changes_against_the_commit_below(gate, capsys):
    (gate.root / "code").write_text("2")
    own.main(gate)
    assert calls(gate, "ab")[0][1:4] == ["-A", "ref:HEAD", "-s"] and "local changes" in capsys.readouterr().out


def test_a_shallow_clone_is_said_and_compares_this_code_with_itself(gate, tmp_path, capsys):
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth", "1", gate.root.as_uri(), str(shallow)], check=True)
    for name in ("fake.py", "answers.json"):
        (shallow / name).write_text((gate.root / name).read_text())
    fake = [sys.executable, "fake.py"]
    clone = own.Gate(specbench=fake, pytest=[*fake, "pytest"], site=[*fake, "report"], root=shallow)
    assert own.main(clone) == 0
    assert sides(calls(clone, "ab")[0]).startswith(own.SAME)
    assert (
        "no parent commit (the first one, or a shallow clone): this code against itself (A/A)"
        in capsys.readouterr().out
    )


def test_without_git(gate, monkeypatch, capsys):
    monkeypatch.setattr(own.Gate, "git", lambda *words: None)
    own.main(gate)
    assert sides(calls(gate, "ab")[0]).startswith(own.SAME) and "no git checkout" in capsys.readouterr().out


FAILED_A = {"measured": False, "reasons": ["A: failed: exit code 1: ImportError"]}
BUSY = {"measured": True, "reasons": ["A: load 4.1 on 2 cores"]}
QUIET = {"measured": True, "reasons": []}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"code": 2, "run": False, "says": "A: No such option: --warmup-max-s"}, "A: No such option: --warmup-max-s"),
        ({"code": 5, "run": False, "says": "A and B differ in prompts"}, "A and B differ in prompts"),
        ({"code": 4, "blocks": [FAILED_A] * 6}, "A: failed: exit code 1: ImportError"),
    ],
)
def test_a_parent_that_cannot_run_is_said(gate, capsys, answer, reason):
    tell(gate, ab=[answer])
    assert own.main(gate) == 0
    first, second = calls(gate, "ab")
    assert sides(second).startswith(own.SAME) and calls(gate, "gate")[1][1] == "runs/ab-1"
    assert f"cannot run this benchmark ({reason}): this code against itself (A/A)" in capsys.readouterr().out


@pytest.mark.parametrize("sides_", [["B"], ["A", "B"]])
def test_blocks_of_this_code_that_fail_are_red(gate, sides_):
    """Not the parent's fault: nothing is measured again, and the gate judges what there is."""
    blocks = [{"measured": False, "reasons": [f"{side}: failed: it broke" for side in sides_]}] * 6
    tell(gate, ab=[{"code": 4, "blocks": blocks}], gate=[{}, {"code": 4}])
    assert own.main(gate) == 4 and len(calls(gate, "ab")) == 1


def test_times_beside_other_work_are_not_judged_and_counts_are(gate, capsys):
    tell(gate, ab=[{"code": 4, "blocks": [QUIET] * 5 + [BUSY] * 2}])
    assert own.main(gate) == 0
    assert "Times: not judged, the machine did other work in too many blocks (A: load 4.1" in capsys.readouterr().out
    assert [words[1] for words in calls(gate, "gate")] == ["runs/run-0"]
    assert calls(gate, "history") == [["history", "add", "runs/history", "runs/run-0"]]


def test_invalid_times_of_a_quiet_machine_are_red(gate):
    tell(gate, ab=[{"code": 4, "blocks": [QUIET] * 6 + [BUSY]}], gate=[{}, {"code": 4}])
    assert own.main(gate) == 4 and len(calls(gate, "gate")) == 2


def test_edits_meanwhile_are_not_the_parents_fault(gate):
    tell(gate, ab=[{"code": 2, "says": "specbench: error: B: the code was edited while a block ran it; start anew"}])
    own.main(gate)
    assert len(calls(gate, "ab")) == 1


def test_this_code_cannot_even_run_against_itself(gate):
    tell(gate, ab=[{"code": 2, "run": False}, {"code": 2, "run": False}])
    assert own.main(gate) == 2 and not calls(gate, "gate")


@pytest.mark.parametrize(
    ("codes", "expected"), [((6, 0), 6), ((0, 1), 1), ((6, 1), 6), ((0, 0), 0)], ids=["counts", "times", "both", "none"]
)
def test_a_red_gate_leaves_the_site_too(gate, codes, expected):
    tell(gate, gate=[{"code": code} for code in codes])
    assert own.main(gate) == expected
    assert calls(gate, "report") and (gate.root / "site" / "comment.md").is_file()


@pytest.mark.parametrize("name", ["history", "report"])
def test_a_site_that_cannot_be_made_is_red(gate, name):
    (gate.root / "site").mkdir()
    tell(gate, **{name: [{"code": 2}]})
    assert own.main(gate) == 2


def test_timed_tests_are_run_and_red_when_they_fail(gate):
    for name in ("tests/a/test_one.py", "tests/test_two.py", "tests/helper.py"):
        (gate.root / name).parent.mkdir(parents=True, exist_ok=True)
        (gate.root / name).write_text("" if name == "tests/test_two.py" else "@pytest.mark.timed\n")
    tell(gate, pytest=[{"code": 1}])
    assert own.main(gate) == 1
    assert calls(gate, "pytest") == [["pytest", "-q", "-m", "timed", "tests/a/test_one.py"]]


def test_a_timed_test_where_the_gate_would_not_look_ends_the_session(tmp_path):
    path = tmp_path / "test_one.py"
    item = SimpleNamespace(path=path, get_closest_marker=lambda name: name == "timed")
    path.write_text(f"@{own.TIMED}\ndef test(): ...\n")
    check_their_files_say_so([item])
    path.write_text("def test(): ...\n")
    elsewhere = SimpleNamespace(path=tmp_path / "cases.py", get_closest_marker=item.get_closest_marker)
    elsewhere.path.write_text(f"@{own.TIMED}\ndef test(): ...\n")
    for each in (item, elsewhere):
        with pytest.raises(pytest.UsageError, match="make gate would not find them"):
            check_their_files_say_so([each])


def test_annotations_on_github(gate, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    own.main(gate)
    assert all("--github" in words for words in calls(gate, "gate"))


def test_the_policies_are_of_the_arms_that_are_run():
    words = shlex.split(own.COUNTS)
    arms = [value for option, value in zip(words, words[1:], strict=False) if option == "-s"]
    counts, times = (read_policy(ROOT / ".ci" / f"{name}.toml") for name in ("counts", "times"))
    (acceptance,) = [gate for gate in counts.counted if gate.name == "acceptance_length"]
    assert set(acceptance.reference) == set(arms) - {"no-spec"}
    assert times.arms == ("B",) and times.inconclusive == "warn"
    assert {name: limit.min_effect for name, limit in times.timed} == {"step_ms": 0.1, "tpot_ms": 0.1}


@pytest.mark.parametrize("sides_", ["PARENT", "LOCAL", "SAME"])
def test_the_command_line_knows_every_option(sides_):
    commands = typer.main.get_command(app).commands
    commands["run"].make_context("run", shlex.split(own.COUNTS)[1:])
    context = commands["ab"].make_context("ab", shlex.split(f"{getattr(own, sides_)} {own.TIMES}"))
    assert context.params["blocks"] == 7
    arms = [] if "-s" in context.args else shlex.split(context.params["a"])
    assert side_config(parse_side("A", shlex.join(arms), None, context.args)).dtype == "float32"
