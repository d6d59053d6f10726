"""A revision's files in a separate folder, with the compiled parts of the checkout, while an engine runs them.

A revision has the same path in every run, since engines cache compiled code by path. Each user holds a lock on its
folder; leftovers of a killed process are removed by the next one.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from specbench.harness.engines.child.process import ChildProcess
from specbench.harness.engines.child.wire import Command
from specbench.harness.engines.source.checkout import Revision
from specbench.workloads.assets.cache import cache_root

FOLDER = "engine-revisions"  # of the cache


@dataclass(frozen=True, slots=True)
class Code:
    """The code that a child is to run. `package`: the folder that the engine must be imported from; None: the installed
    one."""

    package: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def opening(self, engine: Mapping[str, object]) -> Command:
        """The child's first command. `engine`: arguments of the engine."""
        command: Command = {"do": "open", "engine": engine}
        return command if self.package is None else {**command, "package": str(self.package)}


@contextmanager
def laid_out(revision: Revision | None) -> Iterator[Code]:
    """The revision's code, as a context; None: the installed one. ValueError if git cannot provide it."""
    if revision is None:
        yield Code()
        return
    parent = cache_root().resolve() / FOLDER
    parent.mkdir(parents=True, exist_ok=True)
    _remove_left_behind(parent)
    with _own_folder(parent, revision.commit[:12]) as folder:
        _write(revision, folder)
        package = folder / revision.checkout.package
        # Everything on this path takes precedence over an editable installation.
        path = [str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        yield Code(package, {"PYTHONPATH": os.pathsep.join(path)})


@contextmanager
def opening_child(
    command: Sequence[str],
    environment: Mapping[str, str],
    revision: Revision | None,
    arguments: Mapping[str, object],
    log: Path,
) -> Iterator[ChildProcess]:
    """A child that opens its engine with these `arguments`, from the code of `revision`. `environment`: in addition to
    ours. Raises as `laid_out` and ChildProcess do."""
    with laid_out(revision) as code, ChildProcess(command, {**environment, **code.environment}, log) as child:
        child.begin(code.opening(arguments))
        yield child


@contextmanager
def _own_folder(parent: Path, name: str) -> Iterator[Path]:
    """An empty folder that no other process uses."""
    for number in itertools.count():
        folder = parent / f"{name}-{number}"
        lock = _locked(_lock_of(folder))
        if lock is None:
            continue
        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # what cannot be removed now is removed before the next use
            os.close(lock)
        return


def _remove_left_behind(parent: Path) -> None:
    for folder in parent.iterdir():
        if folder.is_dir() and (lock := _locked(_lock_of(folder))) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _locked(path: Path) -> int | None:
    """Locks it; the system releases the lock when this process ends, however it ends. None if another holds it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def _write(revision: Revision, folder: Path) -> None:
    """Writes all files of the commit, through a separate index, and links to the files of the package that git ignores:
    compiled parts and generated files, which the revision shares with the checkout."""
    checkout, index = revision.checkout, {"GIT_INDEX_FILE": str(folder / ".index")}
    checkout.git("read-tree", revision.commit, environment=index)
    checkout.git("checkout-index", "--all", f"--prefix={folder}/", environment=index)
    (folder / ".index").unlink()
    words = ("ls-files", "--others", "--ignored", "--exclude-standard", "-z", "--", checkout.package)
    for name in filter(None, checkout.git(*words).split("\0")):
        link = folder / name
        if "__pycache__" in link.parts or link.suffix == ".pyc" or link.exists():
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(checkout.root / name)
