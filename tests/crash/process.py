"""A command in a process of its own that tells what it measured, and its death at a chosen moment.

Processes are forked from one that has imported everything: a kill then falls into the work and not into seconds of
imports. That process itself runs nothing and starts no thread.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JOURNAL_EVERY_S = 0.05  # a kill loses what ended in the last of these
LATE_S = 1.0  # so long the journal may take on a busy machine
MARK = "SPECBENCH_CRASH_MARK"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """`code`: negative for a signal. `told`: the objects that the process wrote, `seconds` since its start."""

    code: int
    told: Sequence[Any]
    seconds: float


def run(work: Callable[[Callable[[Any], None]], int], log: Path, kill_after_s: float | None = None) -> Ended:
    """Runs `work(tell)` in a child, its output to `log`; kills it after so many seconds, if it has not ended."""
    reading, writing = os.pipe()
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _child(work, log, writing)
    os.close(writing)
    if kill_after_s is not None and not _ends_within(pid, kill_after_s):
        os.kill(pid, signal.SIGKILL)
    with os.fdopen(reading, "rb") as stream:
        lines = stream.read().split(b"\n")
    _, status = os.waitpid(pid, 0)
    told = [json.loads(line) for line in lines[:-1]]  # the last one may be cut off, or is empty
    return Ended(code=os.waitstatus_to_exitcode(status), told=told, seconds=time.monotonic() - started)


def _ends_within(pid: int, seconds: float) -> bool:
    process = os.pidfd_open(pid)
    try:
        return bool(select.select([process], [], [], seconds)[0])
    finally:
        os.close(process)


def _child(work: Callable[[Callable[[Any], None]], int], log: Path, writing: int) -> None:
    code = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = work(lambda value: void(os.write(writing, json.dumps(value).encode() + b"\n")))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def void(_: object) -> None:
    return None


def specbench(words: Sequence[str], mark: str) -> Callable[[Callable[[Any], None]], int]:
    """The command as `run` takes it. It tells [when, run, arm, repeat, request id, end in ns] of each request, and
    [when, run, arm, repeat] of each block that is stored."""

    def work(tell: Callable[[Any], None]) -> int:
        from specbench.harness.cli.main import main
        from specbench.harness.store.journal import OpenBlock
        from specbench.harness.store.run_directory import RunDirectory

        os.environ[MARK] = mark
        OpenBlock.EVERY_S = JOURNAL_EVERY_S
        take, finish = OpenBlock.request, RunDirectory.finish_block
        names: dict[OpenBlock, tuple[str, str, int]] = {}
        begin = RunDirectory.begin_block

        def begin_block(self: RunDirectory, arm: str, repeat: int, num_requests: int) -> OpenBlock:
            block = begin(self, arm, repeat, num_requests)
            names[block] = (str(self.path), arm, repeat)
            return block

        def request(self: OpenBlock, row: Any) -> None:
            take(self, row)
            tell([time.monotonic(), *names[self], row.request_id, row.t_last_ns])

        def finish_block(self: RunDirectory, arm: str, repeat: int, block: OpenBlock) -> None:
            finish(self, arm, repeat, block)
            tell([time.monotonic(), str(self.path), arm, repeat])

        OpenBlock.request, RunDirectory.finish_block = request, finish_block  # type: ignore[method-assign]
        RunDirectory.begin_block = begin_block  # type: ignore[method-assign]
        sys.argv = ["specbench", *words]
        try:
            main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(bool(end.code))
        return 0

    return work


def left_behind(mark: str, within_s: float = 20.0) -> list[int]:
    """Processes that still run for the command with this mark, once they had time to end."""
    end = time.monotonic() + within_s
    while (found := _marked(mark)) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def _marked(mark: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
    return found
