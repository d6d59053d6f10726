"""The end of a log, for messages."""

from __future__ import annotations

import re
from pathlib import Path

_NUM = 20
_READ = 64 * 1024  # bytes from the end; more than _NUM lines of any log
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[^\x20-\x7e\u00a0-\uffff]")
_ERROR = re.compile(r"error\b(?!s?[./])", re.IGNORECASE)  # but not a URL about errors
LONGEST = 200  # characters of a line in a message


def last_lines(log: Path) -> list[str]:
    """The last lines, without empty ones, colours and control characters. Only the last state of a progress bar
    counts."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _READ))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    lines = (_CONTROL.sub("", line.rstrip("\r").rpartition("\r")[2]).strip() for line in text.split("\n"))
    return [line for line in lines if line][-_NUM:]


def telling_line(log: Path) -> str:
    """The last line that names an error, else the last line; empty if the log is empty."""
    lines = last_lines(log)
    errors = [line for line in lines if _ERROR.search(line)]
    line = (errors or lines or [""])[-1]
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."
