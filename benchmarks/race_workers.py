"""What the races of benchmarks/ share: cells, and the processes that time them. Standard library only.

A worker prints one JSON line with "ready" when its engines are loaded, then one with "figures" for each line on
standard input. In decode_race.py (its workers: decode_timer.py) the line `settle` is answered by an empty list.
Everything else that a worker prints is passed over.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

NUM_BATCHED = 16384  # tokens of a step at most, in ours and in vLLM, whose default it is on an H100 and an H200
DRAFTS = (0, 4)  # of a cell that names none
SETTLE, TURN = "settle", "turn"
LIMIT_S = 300.0  # to load, to settle, and for a turn, of a worker that may fail
_ERROR = re.compile(r"[\w.]*(Error|Exception)\b")
_SHOWN_LINES, _SHOWN_CHARACTERS = 25, 160


@dataclass(frozen=True, slots=True)
class Cell:
    k: int
    batch: int
    prompt: int

    @classmethod
    def parse(cls, word: str) -> Cell:
        k, _, load = word.partition("/")
        batch, _, prompt = load.partition("x")
        return cls(int(k), int(batch), int(prompt))

    def __str__(self) -> str:
        return f"{self.k}/{self.batch}x{self.prompt}"


def cells_of(loads: list[str], parse: Callable[[str], Any] = Cell.parse) -> dict[int, list[Any]]:
    """By K, in the order in which they were named."""
    words = [word for load in loads for word in ([load] if "/" in load else [f"{k}/{load}" for k in DRAFTS])]
    found = [parse(word) for word in words]
    return {k: [cell for cell in found if cell.k == k] for k in sorted({cell.k for cell in found})}


def at_least_one(word: str) -> int:
    """A number of turns, for argparse."""
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not allowed; allowed: a whole number, 1 or more")
    return int(word)


def say(words: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)


def environment_of(folder: str) -> dict[str, str]:
    """Ours with what a worker needs to import a package that lies in `folder`: all that its setup.sh exports, where it
    has one, otherwise PYTHONPATH. SystemExit if setup.sh fails."""
    script = (Path(folder) / "setup.sh").resolve()
    if not script.exists():
        return {**os.environ, "PYTHONPATH": folder}
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"  # its python3 is this one
    command = ["bash", "-c", 'source "$0" >&2 && env -0', str(script)]
    done = subprocess.run(command, env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{script} ended with status {done.returncode}")
    return dict(word.split("=", 1) for word in done.stdout.split("\0") if "=" in word)


class Worker:
    """Processes, one a rank, that have the engines of some cells and time them when they are asked."""

    def __init__(
        self,
        command: list[str],
        environments: list[dict[str, str]],
        cells: Sequence[Any],
        stderr: IO[str] | None = None,
    ):
        self.cells = cells
        self._name = " ".join(command[1:3])  # the script and the shape
        self._is_closed = False
        self._processes = [
            subprocess.Popen(
                [*command, *map(str, cells)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,  # an engine's own processes end with it
            )
            for environment in environments
        ]

    def message(self, key: str) -> dict[str, Any]:
        """The next one of rank 0 with `key`; engines print other lines too. SystemExit when it has ended."""
        first = self._processes[0]
        assert first.stdout is not None
        for line in first.stdout:
            if line.startswith("{") and key in (message := json.loads(line)):
                return message
        raise SystemExit(f"{self._name} ended with status {first.wait()}")

    def read(self, key: str) -> Any:
        return self.message(key)[key]

    def ask(self, words: str) -> Any:
        """The figures that rank 0 answers to a line for all ranks."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{words}\n")
            process.stdin.flush()
        return self.read("figures")

    def settle(self) -> None:
        """Every cell finds how many batches a figure takes; nothing of that is counted."""
        self.ask(SETTLE)

    def turn(self) -> dict[Any, float]:
        """Every cell once."""
        return dict(zip(self.cells, self.ask(TURN), strict=True))

    def kill(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.kill()
        for process in self._processes:
            process.wait()


class MayFail(Worker):
    """A worker whose failure does not end the race: its cells have no figures then, but a reason in `missing`.

    What it writes to standard error goes to `log`, and its end is shown when it fails.
    """

    def __init__(self, command: list[str], environment: dict[str, str], cells: Sequence[Any], log: Path):
        self.missing: dict[Any, str] = {}
        self.accepted: dict[Any, float | None] = {}  # tokens a round as the engine counts them
        self.has_failed = False
        self._log = log
        with log.open("w") as file:
            super().__init__(command, [environment], cells, stderr=file)

    def wait(self) -> None:
        """Until it is ready; it says then which cells it cannot run."""
        about = self._tried(lambda: self.message("ready"))
        if about is not None:
            self.missing = {cell: about["missing"][str(cell)] for cell in self.cells if str(cell) in about["missing"]}
            self.accepted = {cell: about["accepted"].get(str(cell)) for cell in self.cells}
            for cell, reason in self.missing.items():
                print(f"{cell}: {reason}", file=sys.stderr, flush=True)

    def ask(self, words: str) -> Any:
        """None once it has failed."""
        ask = super().ask
        return None if self.has_failed else self._tried(lambda: ask(words))

    def turn(self) -> dict[Any, float]:
        figures = self.ask(TURN)
        if figures is None:
            return {}
        return {cell: tps for cell, tps in zip(self.cells, figures, strict=True) if tps is not None}

    def _tried(self, act: Callable[[], Any]) -> Any:
        """None if the worker ended, or is too late and is ended."""
        timer = threading.Timer(LIMIT_S, self.kill)
        timer.daemon = True
        timer.start()
        try:
            return act()
        except (SystemExit, OSError):
            in_time = timer.is_alive()
        finally:
            timer.cancel()
        self.has_failed = True
        self.kill()
        reason = self._reason() if in_time else f"no answer in {LIMIT_S:g} s"
        print(f"{self._name} failed: {reason}\n{self._end_of_log()}", file=sys.stderr, flush=True)
        self.missing = {cell: self.missing.get(cell, reason) for cell in self.cells}
        return None

    def _lines(self) -> list[str]:
        return [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]

    def _end_of_log(self) -> str:
        return "\n".join(self._lines()[-_SHOWN_LINES:])

    def _reason(self) -> str:
        """The last error in the log, one of memory before others: processes that wait for it report that it died."""
        lines = self._lines()
        errors = [line for line in lines if _ERROR.match(line)]
        chosen = [line for line in errors if "OutOfMemory" in line] or errors or lines or ["it ended without a word"]
        return chosen[-1].replace("|", "/")[:_SHOWN_CHARACTERS]
