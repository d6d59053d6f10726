"""One measurement, from an empty folder to an exit code: handles directory, lock, signals, full disk and status."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Protocol, TypeGuard, TypeVar

from specbench.harness.exit_codes import ExitCode
from specbench.harness.run.interrupts import StoppedAtOnce, interruptible
from specbench.harness.run.progress import Progress
from specbench.harness.run.run_lock import run_lock
from specbench.harness.spec.options import OutputOptions
from specbench.harness.store.writing import writing

if TYPE_CHECKING:
    from specbench.harness.store.run_record import RunRecord, SweepRecord

INTERRUPTED = "interrupted"
_OF_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM)


class Directory(Protocol):
    """What a session measures into: a run's or a sweep's."""

    path: Path

    @property
    def record(self) -> RunRecord | SweepRecord: ...

    def resume(self, argv: Sequence[str]) -> None: ...


D = TypeVar("D", bound=Directory)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a new directory goes, the word in its name, and the command that makes it."""

    folder: Path
    label: str
    argv: tuple[str, ...]

    @classmethod
    def of(cls, options: OutputOptions, argv: Sequence[str]) -> Destination:
        return cls(options.output_dir, options.label, tuple(argv))


# From a directory to the command that resumes it.
Resume = Callable[[Path], str]


def resume_by(command: str) -> Resume:
    return lambda path: f"{command} {shlex.quote(str(path))}"


class Session(Generic[D]):
    """`with Session(...) as session`: prepare in it, then `create` or `reopen` a directory, then measure.

    However the block ends, measurements are kept and `close(directory, status)` closes the directory: with None after
    the last block; with `interrupted` on the first Ctrl-C, SIGTERM or SIGHUP, which is handled here and is not an
    error. A second one raises StoppedAtOnce and closes nothing. A full disk is a ValueError that says how to resume.
    Other errors leave the directory interrupted; a directory that was created here and is not `is_worth_keeping` is
    removed.
    """

    def __init__(
        self,
        progress: Progress,
        resume: Resume,
        close: Callable[[D, str | None], object],
        *,
        is_worth_keeping: Callable[[D], bool] = lambda directory: True,
    ):
        self._progress, self._resume, self._close = progress, resume, close
        self._is_worth_keeping = is_worth_keeping
        self._directory: D | None = None
        self._is_new = self._has_begun = False
        self.is_interrupted = False
        self._contexts = ExitStack()

    def __enter__(self) -> Session[D]:
        self._contexts.enter_context(interruptible())
        return self

    def create(self, make: Callable[[], D], folder: Path) -> D:
        """Creates and locks the directory; measuring begins. ValueError if `folder` cannot be written."""
        with writing("output_dir", folder):
            directory = make()
        self._is_new = True
        self.reopen(directory)
        self.begin()
        return directory

    def reopen(self, directory: D) -> None:
        """Locks a stored directory, without changing it yet. ValueError if another process is measuring into it."""
        self._contexts.enter_context(run_lock(directory.path))
        self._directory = directory

    def enter(self, context: AbstractContextManager[T]) -> T:
        """Enters a context that is left at the end of the session, after the directory is closed."""
        return self._contexts.enter_context(context)

    def resume(self, argv: Sequence[str]) -> None:
        """Begins measuring what is missing from the reopened directory."""
        assert self._directory is not None
        try:
            self._directory.resume(argv)
        except OSError as full:
            if not _is_of_disk(full):
                raise
            raise self._cannot_write(self._directory, full) from full
        self.begin()

    def begin(self) -> None:
        """From here on the directory is closed at the end, and every error says how to resume."""
        assert self._directory is not None
        self._has_begun = True
        self._progress.say(f"writing to {self._directory.path}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        with self._contexts:
            if self._directory is None or not self._has_begun:
                return False
            try:
                return self._end(self._directory, error)
            except OSError as full:
                if not _is_of_disk(full):
                    raise
                raise self._cannot_write(self._directory, full) from full
            except StoppedAtOnce as stop:
                stop.advice = self._advice(self._directory)
                raise

    def _end(self, directory: D, error: BaseException | None) -> bool:
        """Closes the directory with the status of its measurement. Returns whether `error` is thereby handled."""
        if isinstance(error, StoppedAtOnce) or _is_of_disk(error):
            raise error
        if error is None:
            self._close(directory, None)
        elif isinstance(error, KeyboardInterrupt):
            self.is_interrupted = True
            with suppress(OSError):  # the terminal is gone, which is why SIGHUP was sent
                self._progress.say("interrupted")
            self._close(directory, INTERRUPTED)
        elif self._is_new and isinstance(error, ValueError) and not self._is_worth_keeping(directory):
            shutil.rmtree(directory.path)
        elif isinstance(error, Exception):
            self._progress.say(f"stopped; {self._advice(directory)}")
            with suppress(Exception):  # the original error may prevent closing, too
                self._close(directory, INTERRUPTED)
        return isinstance(error, KeyboardInterrupt)

    def _cannot_write(self, directory: D, error: OSError) -> ValueError:
        reason = f"cannot write {directory.path}: {error.strerror or error}; measured blocks are kept"
        what = "Free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Mend that"
        return ValueError(f"{reason}. {what}, then: {self._resume(directory.path)}")

    def _advice(self, directory: D) -> str:
        return f"resume with: {self._resume(directory.path)}"


def _is_of_disk(error: BaseException | None) -> TypeGuard[OSError]:
    """Whether it concerns the disk, and not a connection or a missing program, which are OSErrors, too."""
    return isinstance(error, OSError) and error.errno in _OF_DISK


def check_writable(folder: Path) -> None:
    """Checks before a model is loaded, which may take minutes. Creates nothing."""
    whole = folder.expanduser().absolute()
    existing = next(path for path in (whole, *whole.parents) if path.exists())
    if not existing.is_dir():
        raise ValueError(f"output_dir: {existing} is not a directory; give one with --output-dir")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(f"output_dir: cannot write to {existing}; give a directory you can write with --output-dir")


def exit_code(status: str, *, has_failed: bool) -> ExitCode:
    """The exit code of a closed directory: interrupted, partly failed, or complete."""
    if status == INTERRUPTED:
        return ExitCode.INTERRUPTED
    return ExitCode.FAILED if has_failed else ExitCode.PASSED
