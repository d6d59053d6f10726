"""Which code a side runs: the current code, or a revision of a checkout in a separate git worktree."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specbench.harness.store.environment import GitState, git_state

NAMESPACE = ".ns"  # symlinks in the checkout through which `specbench.*` is imported without an installation


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
        return _git(checkout, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
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
                _git(checkout, "worktree", "add", "--detach", "--force", str(path), sha)
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
        return _git(checkout, "rev-parse", f"{git.sha}^{{tree}}")
    except subprocess.CalledProcessError:  # a commit of another clone
        return git.sha


def code_state(checkout: Path | None) -> str | None:
    """Hash of the code in `checkout` in its current state: the commit, local edits and untracked files.

    If two are equal, processes started at these times ran the same files. Only folders that are imported count: notes
    and results may be written meanwhile. None if unknown: for an installed copy, or without git.
    """
    if checkout is None:
        return None
    folders = sorted(link.name for link in (checkout / NAMESPACE / "specbench").iterdir() if link.is_dir())
    try:
        committed = _git(checkout, "ls-tree", "HEAD", "--", *folders)
        edited = _git(checkout, "diff", "--name-only", "--no-renames", "-z", "HEAD", "--", *folders)
        unknown = _git(checkout, "ls-files", "--others", "--exclude-standard", "-z", "--", *folders)
    except (OSError, subprocess.CalledProcessError):
        return None
    digest = hashlib.sha256(committed.encode())
    for name in sorted({*edited.split("\0"), *(n for n in unknown.split("\0") if not _is_left_by_editor(n))} - {""}):
        digest.update(name.encode("utf-8", errors="surrogateescape") + b"\0" + _content(checkout / name))
    return digest.hexdigest()[:16]


def _is_left_by_editor(name: str) -> bool:
    """Whether it is an editor's swap, lock or backup file (`.x.py.swp`, `.#x.py`, `#x.py#`, `x.py~`), never
    imported."""
    parts = name.split("/")
    return any(part.startswith(".") for part in parts) or parts[-1].startswith("#") or parts[-1].endswith("~")


def _content(path: Path) -> bytes:
    """Hash of a file; empty if it has been deleted meanwhile."""
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except (FileNotFoundError, IsADirectoryError):  # a directory: a repository nested in the checkout
        return b""


def _git(checkout: Path, *words: str) -> str:
    command = ["git", "-C", str(checkout), *words]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="surrogateescape", check=True)
    return done.stdout.strip()
