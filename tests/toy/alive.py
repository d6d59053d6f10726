"""Whether processes that tests start are gone."""

from __future__ import annotations

import psutil


def is_alive(pid: int) -> bool:
    """A zombie is dead: whoever should take its status is ending too."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
