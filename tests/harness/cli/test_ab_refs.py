"""`specbench ab` on two git revisions, with real processes: each side runs its own code, and nothing is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from specbench.harness.experiments.ab_code import code_identity, environment_of, find_checkout, resolve_ref, worktree
from specbench.harness.store.code_state import code_state
from specbench.harness.store.environment import GitState, git_state
from specbench.harness.store.run_directory import RunDirectory

ROOT = Path(__file__).parents[3]
FOLDERS = ("harness", "kernels", "reports", "strategies", "workloads")
TOKENS = "output_token_ids=request.output_ids"  # of a row, in engines/native/drive.py
LAUNCH = "    def _launch_decode_round(self) -> None:\n"  # in engines/native/core/engine.py
HANG = "        print('at work', file=__import__('sys').stderr, flush=True)\n        time.sleep(600)\n"


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A checkout of this code without the heads. Tags: `first`; `same`, of the same files; `other`, whose rows say
    other tokens; `stuck`, whose first round says so and never ends."""
    root = tmp_path_factory.mktemp("checkout")
    skip = shutil.ignore_patterns("__pycache__", "heads")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, root / folder, ignore=skip)
    shutil.copytree(ROOT / ".ns", root / ".ns", symlinks=True)
    shutil.copy(ROOT / "pyproject.toml", root)
    (root / ".gitignore").write_text("__pycache__/\nruns/\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    git(root, "tag", "first")
    git(root, "commit", "-q", "--allow-empty", "-m", "the same files again")
    git(root, "tag", "same")
    commit_edit(root, "other", "engines/native/drive.py", TOKENS, "output_token_ids=[0] * len(request.output_ids)")
    commit_edit(root, "stuck", "engines/native/core/engine.py", LAUNCH, LAUNCH + HANG)
    return root


def commit_edit(root: Path, tag: str, file: str, before: str, after: str) -> None:
    path = root / "harness" / file
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))
    git(root, "commit", "-q", "-a", "-m", tag)
    git(root, "tag", tag)


@pytest.fixture
def words(toy, checkout) -> list[str]:
    options = iter(toy[1:])
    kept = [word for name in options for word in (name, next(options)) if name != "--num-repeats"]
    return ["ab", *kept, "--checkout", str(checkout), "-s", "no-spec"]


def test_each_side_runs_its_own_revision(cli, words, checkout, only_run):
    result = cli(*words, "-A", "ref:first", "--ref-b", "other", "--blocks", 1, "--no-verdict")
    assert result.exit_code == 4, result.output
    run = only_run()
    record = json.loads((run.path / "ab.json").read_text())
    rows = run.frames().requests
    said = {arm: [set(ids) for ids in own["output_token_ids"]] for arm, own in rows.groupby("arm")}
    assert said["B"] == [{0}] * 3 and {0} not in said["A"], "only B's rows say other tokens"
    a, b = record["plan"]["sides"]
    assert a["sha"] == git(checkout, "rev-parse", "first") and b["sha"] == git(checkout, "rev-parse", "other")
    first = run.record.ab.sides
    assert [first[s["label"]].git.sha for s in (a, b)] == [a["sha"], b["sha"]]
    assert not record["is_aa"] and f"at first ({a['sha'][:12]})" in result.stdout
    assert "to measure: 2 processes" in result.stderr and "block 1 of 1: " in result.stderr
    assert "CI" not in result.stderr
    assert git(checkout, "worktree", "list", "--porcelain").count("worktree ") == 1, "worktrees are gone"


def wait_until_at_work(process: subprocess.Popen[str], runs: Path) -> None:
    for _ in range(6000):  # ten minutes
        if any("at work" in log.read_text() for log in runs.glob("*/log/*.txt")):
            return
        assert process.poll() is None, "it ended before it was interrupted"
        time.sleep(0.1)
    raise AssertionError("its child never came to work")


def test_ctrl_c_ends_the_process_at_work(words, checkout, only_run, runs):
    """Only the parent is signalled; its child must not live on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "specbench", *words, "--ref-a", "stuck", "--ref-b", "stuck", "--blocks", "6"],
        env={**os.environ, "PYTHONPATH": str(ROOT / ".ns"), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_until_at_work(process, runs)
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=300)[1]
    assert process.returncode == 130 and "Traceback" not in err, err
    run = only_run()
    assert run.record.status == "interrupted" and run.done_blocks() == set()
    assert not RunDirectory.open(run.path).failed_blocks() and "specbench ab --resume" in err
    assert git(checkout, "worktree", "list", "--porcelain").count("worktree ") == 1
    alive = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(run.path / "children") not in alive


def test_revisions_of_the_same_files_are_the_same_code(checkout):
    first, same, other = (
        GitState(sha=resolve_ref(checkout, ref), dirty=False, branch="") for ref in ("first", "same", "other")
    )
    assert code_identity(first, checkout) == code_identity(same, checkout) != code_identity(other, checkout)
    assert code_identity(replace(first, dirty=True), checkout) not in (code_identity(first, checkout), "installed")
    assert code_identity(None, checkout) == "installed"


def test_every_edit_of_the_code_changes_its_state(checkout):
    """Edits, new files and another commit do; notes, results and the same files under another commit do not."""
    engine, new = (
        checkout / "harness" / "engines" / "native" / "core" / "engine.py",
        checkout / "kernels" / "neu \u00fc.py",
    )
    text, first = engine.read_text(), code_state(checkout)
    engine.write_text(text + "# one\n")
    edited = code_state(checkout)
    engine.write_text(text + "# two\n")
    assert len({first, edited, code_state(checkout)}) == 3
    engine.write_text(text)
    new.write_text("x = 1\n")
    added = code_state(checkout)
    new.write_text("x = 2\n")
    assert len({first, added, code_state(checkout)}) == 3
    new.unlink()
    (checkout / "notes.txt").write_text("x")
    (checkout / "harness" / "__pycache__").mkdir(exist_ok=True)
    (checkout / "harness" / "__pycache__" / "x.pyc").write_text("x")
    os.utime(engine)
    for left in (".engine.py.swp", ".#engine.py", "#engine.py#", "engine.py~"):
        (engine.parent / left).write_text("an editor is open")
    assert code_state(checkout) == first
    for left in (".engine.py.swp", ".#engine.py", "#engine.py#", "engine.py~"):
        (engine.parent / left).unlink()
    engine.unlink()
    assert code_state(checkout) != first, "a file that is gone"
    engine.write_text(text)
    assert code_state(checkout) == first
    with worktree(checkout, resolve_ref(checkout, "first")) as one, worktree(checkout, "same") as same:
        assert code_state(one) == code_state(same) != first
    (checkout / "notes.txt").unlink()
    assert code_state(None) is None


def test_a_worktree_is_a_checkout_of_its_own(checkout):
    sha = resolve_ref(checkout, "first")
    with worktree(checkout, sha) as root:
        assert git_state(root / "harness").sha == sha and not git_state(root / "harness").dirty
        code = "import specbench.harness.experiments.ab_code as c; print(c.own_checkout())"
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment_of(root), capture_output=True, text=True, check=True
        )
        assert Path(done.stdout.strip()) == root.resolve()
    assert not root.exists()


def test_a_worktree_goes_even_when_measuring_fails(checkout):
    with pytest.raises(ValueError, match="broken"), worktree(checkout, resolve_ref(checkout, "first")):
        raise ValueError("broken")
    assert git(checkout, "worktree", "list", "--porcelain").count("worktree ") == 1


def test_what_git_says_of_a_worktree_it_cannot_make(checkout):
    with pytest.raises(ValueError, match="ref: 0+ cannot be checked out beside .*fatal"), worktree(checkout, "0" * 40):
        pass


def test_options_that_the_revision_refuses(cli, words, runs):
    """Only that revision knows its options; what it says is passed on, and nothing is left behind."""
    result = cli(*words, "-A", "ref:first --colour red", "--ref-b", "other", "--blocks", 1, "--no-verdict")
    assert result.exit_code == 2 and "A: No such option: --colour" in result.stderr and not list(runs.iterdir())


@pytest.mark.parametrize("ref", ["nowhere", "--all", "HEAD:harness"])
def test_what_is_no_revision(cli, words, runs, ref):
    result = cli(*words, f"--ref-a={ref}", "--ref-b", "other")
    assert result.exit_code == 2 and f"{ref!r} is not a commit, branch or tag" in result.stderr and not runs.exists()


def test_what_is_no_checkout(cli, words, tmp_path):
    result = cli(*words, "--checkout", tmp_path, "--ref-a", "HEAD")
    assert result.exit_code == 2 and f"checkout: {tmp_path} is not the root of a git checkout" in result.stderr
    with pytest.raises(ValueError, match="not the root"):
        find_checkout(str(ROOT / "harness"))
