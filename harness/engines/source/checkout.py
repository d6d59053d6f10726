"""The checkout that an engine is installed from, and revisions of it. The checkout is never changed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from specbench.harness.engines.child.interpreter import asked
from specbench.harness.engines.source.build_files import PYPROJECT, build_part, is_of_build
from specbench.harness.spec.arm import ArmConfig

_SHOWN = 3  # files that a refusal names
_GITLINK = "160000"  # mode of a submodule
# Prints where a package is, without importing it, and whether an installation copied it there.
_WHERE = """
import importlib.util, json, os, sys, sysconfig
found = importlib.util.find_spec(sys.argv[1])
folder = os.path.dirname(os.path.realpath(found.origin))
copies = [os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib")]
print(json.dumps([folder, any(folder.startswith(copy + os.sep) for copy in copies)]))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkout:
    """`root`: of the repository; `package`: the engine's folder below it, as python/sglang. `commit`: that is checked
    out, in full; `is_dirty`: files that git knows were edited since."""

    root: Path
    package: str
    commit: str
    is_dirty: bool

    def describe(self) -> str:
        return f"{self.commit}{' with local changes' if self.is_dirty else ''}"

    def git(self, *words: str, environment: Mapping[str, str] | None = None) -> str:
        """What git prints. ValueError with git's message if it fails."""
        return _git(self.root, *words, environment=environment)


@dataclass(frozen=True, kw_only=True, slots=True)
class Revision:
    """A commit of a checkout whose compiled parts it can run. `ref`: as the user named it."""

    checkout: Checkout
    ref: str
    commit: str

    @property
    def note(self) -> str:
        return f"code of {self.ref} ({self.commit[:12]})"

    def text(self, path: str) -> str:
        """The text of a file of the package. ValueError if the revision has no such file."""
        return self.checkout.git("show", f"{self.commit}:{self.checkout.package}/{path}")

    def facts(self) -> dict[str, object]:
        """For the record. The files are those of the commit, whatever the checkout contains."""
        return {"ref": self.ref, "commit": self.commit, "dirty": False, "compiled_parts_of": self.checkout.describe()}


@dataclass(slots=True)
class Revisions:
    """Those that the arms of a run name, each looked up once, so that all use one commit. `package`: vllm, sglang."""

    package: str
    _found: dict[tuple[Path, str], Revision] = field(default_factory=dict, init=False)

    def of(self, arm: ArmConfig, python: Path) -> Revision | None:
        """The arm's revision; None if it names none. ValueError if it cannot be run."""
        ref = arm.engine.get("ref")
        if ref is None:
            return None
        if arm.own_config.get("server") == "yes":
            raise ValueError(f"ref: {ref!r} is not allowed with engine.server=yes; revisions run in process")
        if (python, ref) not in self._found:
            self._found[python, ref] = find_revision(python, self.package, ref)
        return self._found[python, ref]

    def facts(self, revision: Revision | None, python: Path) -> dict[str, object]:
        """Which code an arm runs, for the record; empty for an installed copy."""
        if revision is not None:
            return revision.facts()
        try:
            checkout = find_checkout(python, self.package)
        except ValueError:
            return {}
        return {"commit": checkout.commit, "dirty": checkout.is_dirty}


def find_checkout(python: Path, package: str) -> Checkout:
    """ValueError, which begins with `ref`, if this interpreter's package is not a checkout."""
    done = asked(python, _WHERE, package)
    if done.returncode:
        raise ValueError(f"ref: {python} cannot locate its {package}: {done.stderr.strip()[-200:]}")
    folder, is_copy = json.loads(done.stdout)
    if is_copy:
        raise ValueError(
            f"ref: {package} of {python} is an installed copy ({folder}), not an editable checkout; install one with "
            "pip install -e"
        )
    try:
        root = Path(_git(Path(folder), "rev-parse", "--show-toplevel")).resolve()
        below = Path(folder).relative_to(root).as_posix()
        _git(root, "ls-files", "--error-unmatch", "--", f"{below}/__init__.py")
    except ValueError as error:
        reason = str(error).removeprefix("ref: ")
        raise ValueError(
            f"ref: {folder}, which contains {package} of {python}, is not a git checkout: {reason}"
        ) from error
    return Checkout(
        root=root,
        package=below,
        commit=_git(root, "rev-parse", "--verify", "HEAD"),
        is_dirty=_git(root, "status", "--porcelain", "--untracked-files=no") != "",
    )


def find_revision(python: Path, package: str, ref: str) -> Revision:
    """ValueError if it is not a commit, or needs other compiled parts than the checkout has."""
    checkout = find_checkout(python, package)
    try:
        commit = checkout.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    except ValueError as error:
        raise ValueError(f"ref: {ref!r} is not a commit, branch or tag of {checkout.root}") from error
    if different := _build_differences(checkout, commit):
        more = f" and {len(different) - _SHOWN} more" if len(different) > _SHOWN else ""
        raise ValueError(
            f"ref: {ref!r} is not allowed; its build differs from that of {checkout.root}, whose compiled parts it "
            f"would run: {', '.join(different[:_SHOWN])}{more}; build it in a separate environment (--engine-python)"
        )
    return Revision(checkout=checkout, ref=ref, commit=commit)


def _build_differences(checkout: Checkout, commit: str) -> list[str]:
    """Build files that differ between the checkout, including local edits, and the commit."""
    words = checkout.git("diff", "--raw", "--no-renames", "--ignore-submodules=dirty", "-z", commit, "--").split("\0")
    changed = list(zip(words[::2], words[1::2], strict=False))
    return [
        path
        for modes, path in changed
        if is_of_build(path)
        or _GITLINK in modes.lstrip(":").split()[:2]
        or (Path(path).name == PYPROJECT and not _same_build(checkout, commit, path))
    ]


def _same_build(checkout: Checkout, commit: str, path: str) -> bool:
    """Whether two versions of pyproject.toml build the same. Also False if one is missing or cannot be parsed."""
    try:
        here = (checkout.root / path).read_text(encoding="utf-8")
        return build_part(here) == build_part(checkout.git("show", f"{commit}:{path}"))
    except (OSError, ValueError):
        return False


def _git(folder: Path, *words: str, environment: Mapping[str, str] | None = None) -> str:
    """Runs git without optional locks, so that queries write nothing."""
    own = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", **(environment or {})}
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True, env=own)
    except FileNotFoundError as error:
        raise ValueError("ref: git is not installed") from error
    except subprocess.CalledProcessError as error:
        raise ValueError(f"ref: git {words[0]}: {' '.join(error.stderr.split())}") from error
    return done.stdout.removesuffix("\n")
