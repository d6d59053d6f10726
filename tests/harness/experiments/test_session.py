"""A session on a directory that does nothing: signals, a full disk and errors at every stage of it."""

from __future__ import annotations

import errno
import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from toy.interrupts import terminal_signals

from specbench.harness.experiments.session import Session, resume_by
from specbench.harness.run.interrupts import StoppedAtOnce, deferred_interrupt, interruptible
from specbench.harness.run.progress import NullProgress
from specbench.harness.run.run_lock import run_lock

FULL = OSError(errno.ENOSPC, "No space left on device")
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Log:
    """A directory that keeps its status in a file."""

    def __init__(self, path: Path):
        self.path = path
        self.status = "running"
        path.mkdir(exist_ok=True)
        self.resumed_by: Sequence[str] = ()

    def resume(self, argv: Sequence[str]) -> None:
        self.resumed_by = argv

    def close(self, status: str | None) -> None:
        self.status = status or "complete"
        (self.path / "status.json").write_text(json.dumps({"status": self.status}))


class Lines(NullProgress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def python_signals():
    with terminal_signals():
        yield


@pytest.fixture
def log(tmp_path: Path, python_signals) -> Log:
    return Log(tmp_path / "log")


def measure(log: Log, body: Callable[[], object], *, close=Log.close, keeps: bool = True, progress=None) -> Session:
    session: Session = Session(
        progress or NullProgress(), resume_by("go on"), close, is_worth_keeping=lambda directory: keeps
    )
    with session as held:
        held.create(lambda: log, log.path.parent)
        body()
    return session


def press(number: int) -> Callable[[], None]:
    return lambda: signal.raise_signal(number)


def raises(error: BaseException) -> Callable[[], None]:
    def body(*_: object) -> None:
        raise error

    return body


def test_a_whole_measurement(log):
    assert not measure(log, lambda: None).is_interrupted
    assert log.status == "complete"


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_closes_what_was_measured(log, number):
    assert measure(log, press(number)).is_interrupted
    assert log.status == "interrupted"


@pytest.mark.parametrize("second", SIGNALS)
@pytest.mark.parametrize("first", SIGNALS)
def test_the_second_signal_stops_at_once(log, first, second):
    def close(directory: Log, status: str | None) -> None:
        with deferred_interrupt():
            signal.raise_signal(second)
            directory.close(status)

    with pytest.raises(StoppedAtOnce) as stop:
        measure(log, press(first), close=close)
    assert log.status == "running" and stop.value.advice == f"resume with: go on {log.path}"


def test_a_signal_waits_for_a_write_and_a_second_does_not(python_signals):
    written = []
    with pytest.raises(KeyboardInterrupt), interruptible(), deferred_interrupt():
        signal.raise_signal(signal.SIGTERM)
        written.append("whole")
    with pytest.raises(StoppedAtOnce), interruptible(), deferred_interrupt():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        written.append("more")
    assert written == ["whole"]


def test_sessions_within_a_session_count_signals_together(log, tmp_path):
    inner = Log(tmp_path / "inner")

    def point() -> None:
        measure(inner, press(signal.SIGINT))
        assert inner.status == "interrupted"
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(StoppedAtOnce):
        measure(log, point)
    assert log.status == "running"


def test_what_is_ignored_stays_ignored(log):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        measure(log, press(signal.SIGTERM))
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert log.status == "complete"


@pytest.mark.parametrize("stage", ["measuring", "closing", "closing after Ctrl-C"])
def test_a_full_disk_says_how_to_go_on(log, stage):
    body = {"measuring": raises(FULL), "closing": lambda: None}.get(stage, press(signal.SIGINT))
    close = Log.close if stage == "measuring" else raises(FULL)
    with pytest.raises(
        ValueError, match="No space left on device; measured blocks are kept. Free some space, then: go on "
    ):
        measure(log, body, close=close, keeps=False)
    assert log.path.exists() and log.status == "running"


def test_other_errors_of_the_disk_take_other_measures(log):
    with pytest.raises(ValueError, match="Permission denied; measured blocks are kept. Mend that, then: go on "):
        measure(log, raises(PermissionError(errno.EACCES, "Permission denied")))


def test_a_folder_that_cannot_be_made(tmp_path, python_signals):
    session: Session = Session(NullProgress(), resume_by("go on"), Log.close)
    with pytest.raises(ValueError, match="output_dir: cannot write to .*: No space left on device"), session as held:
        held.create(raises(FULL), tmp_path)


def test_a_disk_that_is_still_full_says_how_to_go_on(log, monkeypatch):
    """Going on begins with a line in its record: that there is no room was told without the path."""
    monkeypatch.setattr(Log, "resume", raises(FULL))
    session: Session = Session(NullProgress(), resume_by("go on"), Log.close)
    said = f"cannot write {log.path}: No space left on device; measured blocks are kept. Free some space, then: go on "
    with pytest.raises(ValueError, match=said), session as held:
        held.reopen(log)
        held.resume(["again"])
    assert log.status == "running" and not (log.path / "status.json").exists()


@pytest.mark.parametrize("keeps", [True, False])
def test_bad_input_leaves_only_what_is_worth_keeping(log, keeps):
    lines = Lines()
    with pytest.raises(ValueError, match="no such thing"):
        measure(log, raises(ValueError("no such thing")), keeps=keeps, progress=lines)
    assert log.path.exists() is keeps
    if keeps:
        assert log.status == "interrupted" and lines.lines[-1] == f"stopped; resume with: go on {log.path}"


@pytest.mark.parametrize("error", [RuntimeError("a bug"), ConnectionResetError(errno.ECONNRESET, "reset by peer")])
def test_other_errors_close_the_directory_and_go_on_up(log, error):
    with pytest.raises(type(error)):
        measure(log, raises(error), keeps=False)
    assert log.status == "interrupted"


def test_an_error_is_not_hidden_by_one_of_closing(log):
    with pytest.raises(ValueError, match="the code was edited"):
        measure(log, raises(ValueError("the code was edited")), close=raises(FULL))


def test_a_stored_directory_is_not_touched_before_it_goes_on(log):
    session: Session = Session(NullProgress(), resume_by("go on"), Log.close, is_worth_keeping=lambda directory: False)
    with pytest.raises(ValueError), session as held:
        held.reopen(log)
        raise ValueError("measured on another machine")
    assert log.path.exists() and log.status == "running" and log.resumed_by == ()
    with pytest.raises(ValueError), Session(NullProgress(), resume_by("go on"), Log.close) as held:
        held.reopen(log)
        held.resume(["the", "command"])
        raise ValueError("an arm is gone")
    assert log.path.exists() and log.status == "interrupted" and log.resumed_by == ["the", "command"]


def test_it_holds_its_directory_alone_and_lets_go_of_it(log):
    def other_process() -> None:
        with pytest.raises(ValueError, match="is being measured by another process"), run_lock(log.path):
            pass

    measure(log, other_process)
    with run_lock(log.path):
        pass


def test_a_handler_that_was_left_behind_passes_the_signal_on():
    """As when a second signal interrupts the code that puts the handlers back."""
    with interruptible():
        with deferred_interrupt():
            left_behind = signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, left_behind)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
