"""Which code a side runs: the one at hand, or a revision of a checkout in a git worktree of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specbench.harness.measure.environment import git_state

NAMESPACE = ".ns"  # symlinks in the checkout through which `specbench.*` is imported without an installation


def own_checkout() -> Path | None:
    """The checkout that this code runs from; None for an installed copy."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / NAMESPACE / "specbench").is_dir() else None


def find_checkout(path: str | None) -> Path:
    """The checkout whose revisions are compared; ValueError where there is none."""
    root = Path(path).expanduser().resolve() if path else own_checkout()
    if root is None:
        raise ValueError("checkout: this specbench is an installed copy, not a checkout; give one with --checkout DIR")
    if git_state(root) is None or not (root / NAMESPACE / "specbench").is_dir():
        raise ValueError(f"checkout: {root} is not the root of a git checkout of specbench; give one with --checkout")
    return root


def resolve_ref(checkout: Path, ref: str) -> str:
    """The commit that `ref` names; ValueError for one that git does not know."""
    try:
        return _git(checkout, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    except subprocess.CalledProcessError as error:
        raise ValueError(f"ref: {ref!r} is not a commit, branch or tag of {checkout}") from error


@contextmanager
def worktree(checkout: Path, sha: str) -> Iterator[Path]:
    """A commit's files in a temporary directory, gone afterwards, its registration in the checkout too."""
    with tempfile.TemporaryDirectory(prefix="specbench-ab-") as parent:
        path = Path(parent) / sha[:12]
        try:
            try:
                _git(checkout, "worktree", "add", "--detach", "--force", str(path), sha)
            except subprocess.CalledProcessError as error:
                said = " ".join(error.stderr.split())
                raise ValueError(f"ref: {sha} cannot be checked out beside {checkout}: {said}") from error
            yield path
        finally:  # not `worktree remove`, whose own failure would hide what happened above
            shutil.rmtree(path, ignore_errors=True)
            subprocess.run(["git", "-C", str(checkout), "worktree", "prune"], capture_output=True)


def environment_of(root: Path | None) -> dict[str, str]:
    """Environment of a process that imports `specbench` from checkout `root`; None: as this process does."""
    root = root or own_checkout()
    before = os.environ.get("PYTHONPATH")
    if root is None:
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(root / NAMESPACE), before]))}


def code_identity(git: Mapping[str, Any] | None, checkout: Path | None) -> str:
    """Equal for sides that run the same files: a commit's tree, or the commit with the working tree's changes."""
    if not git or not git.get("sha"):
        return "installed"
    sha = str(git["sha"])
    if git.get("dirty") or checkout is None:
        return f"{sha}{' with local changes' if git.get('dirty') else ''}"
    return _git(checkout, "rev-parse", f"{sha}^{{tree}}")


def _git(checkout: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(checkout), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()
