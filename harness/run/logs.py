"""The logs of the programs that serve arms: in a temporary directory, with a copy of their end in the run directory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from specbench.harness.store.masking import MASK, is_secret_name, plain_text
from specbench.harness.text import slug

FOLDER = "logs"
MOST = 1 << 20  # bytes of a copy
_SHORTEST = 8  # characters: shorter secrets are not searched for, since they occur in other words


class Logs:
    """One file for each arm, named by its number and label. Restarted programs append to it."""

    def __init__(self, labels: Sequence[str]):
        self._names = {label: f"{number}-{slug(label)}.log" for number, label in enumerate(labels, 1)}
        self._folder: Path | None = None
        self._kept_in: Path | None = None

    def path(self, label: str) -> Path:
        """The log file of the arm's program. It does not exist if no program serves the arm."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="specbench-logs-"))
        return self._folder / self._names[label]

    def keep_in(self, run: Path) -> None:
        """From now on, logs of ended programs are copied to this run directory."""
        self._kept_in = run / FOLDER

    def keep(self, label: str) -> Path | None:
        """Copies the log, without anything that looks secret; None if there is no log or no run directory."""
        log = self.path(label)
        if self._kept_in is None or not log.exists() or not self._kept_in.parent.is_dir():
            return None
        self._kept_in.mkdir(exist_ok=True)
        kept = self._kept_in / log.name
        kept.write_bytes(without_secrets(end_of(log)).encode()[-MOST:])
        return kept

    def explain(self, label: str, error: Exception) -> None:
        """Makes the error of this arm name the copy instead of the log."""
        kept, text = self.keep(label), str(error)
        if kept is not None and (log := str(self.path(label))) in text:
            error.args = (text.replace(log, str(kept)),)

    def close(self) -> None:
        """Logs without a copy are left in place, where messages point to them."""
        if self._folder is None:
            return
        for label in self._names:
            if self.keep(label) is not None:
                self.path(label).unlink()
        if not any(self._folder.iterdir()):
            self._folder.rmdir()
            self._folder = None


def end_of(log: Path) -> str:
    """The last MOST bytes at most, starting at a line if the log is longer."""
    with log.open("rb") as file:
        start = max(0, log.stat().st_size - MOST)
        file.seek(start)
        text = file.read(MOST).decode(errors="replace")
    return text.partition("\n")[2] if start else text


def without_secrets(text: str) -> str:
    """Masks the values of secrets in the user's environment, which programs inherit, wherever they occur."""
    for name, value in os.environ.items():
        if is_secret_name(name) and len(value) >= _SHORTEST:
            text = text.replace(value, MASK)
    return plain_text(text)
