"""What the programs that serve arms print: in a directory for temporary files, and its end in the run directory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from specbench.harness.store.masking import MASK, is_secret_name, plain_text
from specbench.harness.text import slug

FOLDER = "logs"
MOST = 1 << 20  # bytes of a copy
_SHORTEST = 8  # characters of a secret that is looked for: shorter ones are part of other words


class Logs:
    """One file for each arm, named by its number and label. Programs that are started again add to it."""

    def __init__(self, labels: Sequence[str]):
        self._names = {label: f"{number}-{slug(label)}.log" for number, label in enumerate(labels, 1)}
        self._folder: Path | None = None
        self._kept_in: Path | None = None

    def path(self, label: str) -> Path:
        """Where the arm's program prints to. Not there where it is served by none."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="specbench-logs-"))
        return self._folder / self._names[label]

    def keep_in(self, run: Path) -> None:
        """From now on what ends is copied to this run directory."""
        self._kept_in = run / FOLDER

    def keep(self, label: str) -> Path | None:
        """The copy, without what looks secret; None where there is no log, or no run directory."""
        log = self.path(label)
        if self._kept_in is None or not log.exists() or not self._kept_in.parent.is_dir():
            return None
        self._kept_in.mkdir(exist_ok=True)
        kept = self._kept_in / log.name
        kept.write_bytes(without_secrets(end_of(log)).encode()[-MOST:])
        return kept

    def explain(self, label: str, error: Exception) -> None:
        """The error of this arm names the copy in place of the log."""
        kept, text = self.keep(label), str(error)
        if kept is not None and (log := str(self.path(label))) in text:
            error.args = (text.replace(log, str(kept)),)

    def close(self) -> None:
        """Logs that have no copy stay where messages say they are."""
        if self._folder is None:
            return
        for label in self._names:
            if self.keep(label) is not None:
                self.path(label).unlink()
        if not any(self._folder.iterdir()):
            self._folder.rmdir()
            self._folder = None


def end_of(log: Path) -> str:
    """At most MOST bytes, from the start of a line where that is not all."""
    with log.open("rb") as file:
        start = max(0, log.stat().st_size - MOST)
        file.seek(start)
        text = file.read(MOST).decode(errors="replace")
    return text.partition("\n")[2] if start else text


def without_secrets(text: str) -> str:
    """Programs have the user's environment: its secrets are masked by value, wherever they stand."""
    for name, value in os.environ.items():
        if is_secret_name(name) and len(value) >= _SHORTEST:
            text = text.replace(value, MASK)
    return plain_text(text)
