"""Why an SGLang process has ended, from the log. Standard library only, since the child imports it by path."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

_LOG_TAIL = 256 * 1024  # bytes
_MEMORY = re.compile(r"OutOfMemoryError|out of memory|Not enough memory", re.IGNORECASE)
_ERROR = re.compile(r"^(\[.*\] )?[\w.]*(Error|Exception)\b.*: ")


class EngineDied(RuntimeError):
    """A process of SGLang's has ended. `kind`: memory or engine."""

    def __init__(self, kind: str, text: str):
        super().__init__(text)
        self.kind = kind


def died(text: str) -> EngineDied:
    """The reason from the log: its last line about memory, else the last error."""
    lines = _log_lines()
    memory = [line for line in lines if _MEMORY.search(line)]
    relevant = memory or [line for line in lines if _ERROR.search(line)]
    return EngineDied("memory" if memory else "engine", relevant[-1] if relevant else text)


def _log_lines() -> list[str]:
    """The end of the file that standard error goes to, if it is a file."""
    path = Path(os.readlink("/proc/self/fd/2")) if sys.platform == "linux" else None
    if path is None or not path.is_file():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_TAIL))
        return [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
