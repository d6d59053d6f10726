"""Revisions of an engine's checkout: which are refused, and how one is laid out while it is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from toy.engine_checkout import PACKAGE, commit, edit, git, make_venv, state

from specbench.harness.engines.source.checkout import Revisions, find_checkout, find_revision
from specbench.harness.engines.source.laid_out import laid_out
from specbench.harness.spec.arm import parse_arm


def test_a_revision_has_its_own_files_and_the_compiled_parts_of_the_checkout(checkout, python, laid):
    edit(checkout, f"{PACKAGE}/scheduler.py", "STEP_S", "EDITED_S")  # local edits are of no revision
    (checkout / PACKAGE / "new.py").write_text("")
    before = state(checkout)
    revision = find_revision(python, "sglang", "first")
    assert revision.commit == git(checkout, "rev-parse", "first") and revision.note.startswith("code of first (")
    assert revision.facts()["compiled_parts_of"] == git(checkout, "rev-parse", "second") + " with local changes"
    with laid_out(revision) as code:
        assert code.package == laid / f"{revision.commit[:12]}-0" / PACKAGE
        assert "STEP_S = 0.002" in (code.package / "scheduler.py").read_text()
        assert not (code.package / "new.py").exists() and (code.package / "kernel.so").read_text() == "compiled"
        command = [str(python), "-c", "import sglang; print(sglang.__version__)"]
        done = subprocess.run(command, env=dict(code.environment), capture_output=True, text=True, check=True)
        assert done.stdout == "0.5.16+built.first\n"
        assert code.opening({})["package"] == str(code.package)
    assert [path.suffix for path in laid.iterdir()] == [".lock"]
    assert state(checkout) == before, "not even git's own files"


def test_without_a_revision_nothing_is_laid_out(checkout, python, laid):
    with laid_out(None) as code:
        assert code.opening({"a": 1}) == {"do": "open", "engine": {"a": 1}} and not code.environment
    assert not laid.exists()
    arm = parse_arm("no-spec")
    assert Revisions("sglang").of(arm, python) is None
    head = git(checkout, "rev-parse", "HEAD")
    assert Revisions("sglang").facts(None, python) == {"commit": head, "dirty": False}
    edit(checkout, "pyproject.toml", "100", "120")
    assert Revisions("sglang").facts(None, python) == {"commit": head, "dirty": True}


def test_two_users_of_a_revision_have_a_folder_each(checkout, python, laid):
    revision = find_revision(python, "sglang", "first")
    with laid_out(revision) as one:
        with laid_out(revision) as other:
            assert one.package != other.package
        assert one.package.is_dir() and not other.package.exists()
    with laid_out(revision) as again:
        assert again.package == one.package, "engines keep what they compile by path"


def test_what_a_killed_process_left_is_removed_by_the_next(checkout, python, laid):
    program = f"""
import sys; sys.path[:0] = {sys.path!r}
from pathlib import Path
from specbench.harness.engines.source.checkout import find_revision
from specbench.harness.engines.source.laid_out import laid_out
with laid_out(find_revision(Path({str(python)!r}), "sglang", "first")):
    import os, signal; os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program], env=dict(os.environ)).returncode == -9
    (left,) = (path for path in laid.iterdir() if path.is_dir())
    with laid_out(find_revision(python, "sglang", "second")):
        assert not left.exists()


def test_a_revision_goes_even_when_measuring_fails(checkout, python, laid):
    with pytest.raises(RuntimeError, match="broken"), laid_out(find_revision(python, "sglang", "first")):
        raise RuntimeError("broken")
    assert [path.suffix for path in laid.iterdir()] == [".lock"]


def test_a_name_means_one_commit_in_a_run(checkout, python):
    revisions = Revisions("sglang")
    first = revisions.of(parse_arm("no-spec:ref=main"), python)
    edit(checkout, f"{PACKAGE}/scheduler.py", "0.02", "0.03")
    git(checkout, "commit", "-q", "-a", "-m", "third")
    assert revisions.of(parse_arm("ngram:ref=main"), python) is first
    assert Revisions("sglang").of(parse_arm("no-spec:ref=main"), python).commit != first.commit


def test_a_difference_in_compiled_sources_is_refused_and_named(checkout, python):
    edit(checkout, "csrc/kernel.cu", "one", "two")
    for name in ("a.h", "b.h", "c.h"):
        (checkout / name).write_text("")
    git(checkout, "add", "-A")
    with pytest.raises(ValueError, match=r"^ref: 'first' is not allowed; .*: a.h, b.h, c.h and 1 more; build it in a"):
        find_revision(python, "sglang", "first")
    commit(checkout, "third")
    assert find_revision(python, "sglang", "third").ref == "third"
    with pytest.raises(ValueError, match="ref: 'second' is not allowed"):
        find_revision(python, "sglang", "second")


@pytest.mark.parametrize(
    ("before", "after", "is_allowed"),
    [("line-length = 100", "line-length = 120", True), ('name = "sglang"', 'name = "other"', False), ("]", "", False)],
)
def test_of_pyproject_only_the_build_counts(checkout, python, before, after, is_allowed):
    edit(checkout, "pyproject.toml", before, after)
    if is_allowed:
        assert find_revision(python, "sglang", "first")
        return
    with pytest.raises(ValueError, match="ref: 'first' is not allowed; .* would run: pyproject.toml; build it"):
        find_revision(python, "sglang", "first")


def test_another_submodule_is_a_difference(checkout, python):
    sha = git(checkout, "rev-parse", "first")
    git(checkout, "update-index", "--add", "--cacheinfo", f"160000,{sha},third_party")
    git(checkout, "commit", "-q", "-m", "with a submodule")
    (checkout / "third_party").mkdir()
    with pytest.raises(ValueError, match="would run: third_party;"):
        find_revision(python, "sglang", "first")


@pytest.mark.parametrize("ref", ["nowhere", "--all", "HEAD:csrc"])
def test_what_is_no_revision(checkout, python, ref):
    with pytest.raises(ValueError, match=f"ref: {ref!r} is not a commit, branch or tag of {checkout}"):
        find_revision(python, "sglang", ref)


def test_what_is_no_checkout(checkout, tmp_path):
    """A copy in a repository that does not know it, and a folder in none."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "sglang").symlink_to(tmp_path / "copied")
    (tmp_path / "copied").mkdir()
    (tmp_path / "copied" / "__init__.py").touch()
    plain = make_venv(tmp_path / "of-plain", str(tmp_path / "plain")) / "bin" / "python"
    with pytest.raises(ValueError, match=f"ref: {tmp_path}/copied, which contains sglang of .*, is not a git checkout"):
        find_checkout(plain, "sglang")
    venv = make_venv(checkout / "venv")
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "sglang").mkdir()
    (site / "sglang" / "__init__.py").touch()
    with pytest.raises(ValueError, match=r"ref: sglang of .* is an installed copy \(.*\), not an editable checkout"):
        find_checkout(venv / "bin" / "python", "sglang")
    with pytest.raises(ValueError, match="ref: .* cannot locate its nothing"):
        find_checkout(Path(sys.executable), "nothing")


def test_servers_run_no_revision(python):
    with pytest.raises(ValueError, match="ref: 'main' is not allowed with engine.server=yes"):
        Revisions("sglang").of(parse_arm("no-spec:ref=main,engine.server=yes"), python)
