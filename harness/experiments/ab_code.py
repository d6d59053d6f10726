"""Which code a side runs: the current code, or a revision of a checkout in a separate git worktree."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specbench.harness.store.code_state import NAMESPACE, git_output
from specbench.harness.store.environment import GitState, git_state


def own_checkout() -> Path | None:
    """The checkout that this code runs from; None for an installed copy."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / NAMESPACE / "specbench").is_dir() else None


def find_checkout(path: str | None) -> Path:
    """The checkout whose revisions are compared; ValueError if there is none."""
    root = Path(path).expanduser().resolve() if path else own_checkout()
    if root is None:
        raise ValueError("checkout: this specbench is an installed copy, not a checkout; give one with --checkout DIR")
    if git_state(root) is None or not (root / NAMESPACE / "specbench").is_dir():
        raise ValueError(f"checkout: {root} is not the root of a git checkout of specbench; give one with --checkout")
    return root


def resolve_ref(checkout: Path, ref: str) -> str:
    """The commit that `ref` names; ValueError if git does not know it."""
    try:
        return git_output(checkout, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    except subprocess.CalledProcessError as error:
        raise ValueError(f"ref: {ref!r} is not a commit, branch or tag of {checkout}") from error


@contextmanager
def worktree(checkout: Path, sha: str) -> Iterator[Path]:
    """A commit's files in a temporary worktree. On exit, the directory and its registration in the checkout are
    removed."""
    with tempfile.TemporaryDirectory(prefix="specbench-ab-") as parent:
        path = Path(parent) / sha[:12]
        try:
            try:
                git_output(checkout, "worktree", "add", "--detach", "--force", str(path), sha)
            except subprocess.CalledProcessError as error:
                said = " ".join(error.stderr.split())
                raise ValueError(f"ref: {sha} cannot be checked out beside {checkout}: {said}") from error
            # In older revisions `specbench` is a namespace package, which an installed package of that name would
            # shadow.
            if (path / NAMESPACE / "specbench").is_dir():
                (path / NAMESPACE / "specbench" / "__init__.py").touch()
            yield path
        finally:  # not `worktree remove`: if that failed, it would mask the original error
            shutil.rmtree(path, ignore_errors=True)
            subprocess.run(["git", "-C", str(checkout), "worktree", "prune"], capture_output=True)


def environment_of(root: Path | None) -> dict[str, str]:
    """Environment of a process that imports `specbench` from checkout `root`; None: from where this process does."""
    root = root or own_checkout()
    before = os.environ.get("PYTHONPATH")
    if root is None:
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(root / NAMESPACE), before]))}


def code_identity(git: GitState | None, checkout: Path | None) -> str:
    """Equal for sides that run the same files: a commit's tree, or the commit plus the changes of the working tree."""
    if git is None or not git.sha:
        return "installed"
    if git.dirty or checkout is None:
        return git.describe()
    try:
        return git_output(checkout, "rev-parse", f"{git.sha}^{{tree}}")
    except subprocess.CalledProcessError:  # a commit of another clone
        return git.sha
