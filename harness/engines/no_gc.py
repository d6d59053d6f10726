"""The garbage collector rests while requests are timed and graphs are captured; in children of other engines
child/obey.py does the same.

A full collection looks at every object of the process: 0.1 s right after our imports, 0.2 to 0.3 s with a run's rows,
which is a third of a short block. Seen on an H100 as single steps of 215 to 321 ms among steps of 3 ms.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """What becomes garbage meanwhile is left to later collections."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
