"""Named ranges around phases, for nsys (NVTX) and the torch profiler, from one helper; free when off."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Protocol

RANGE_KINDS = ("off", "nvtx")

# In addition to the phases and segments of a round, which have ranges with their own names within `step <n>`:
PREPARE = "prepare"  # the host's work before a launch: pages, uploads, plans of attention
STATUS = "status"  # the copy of a step's outcome to the host, and the wait for it
LATE_STATUS = "late_status"  # the wait for an older step's, while the device works on newer ones


class Ranges(Protocol):
    def range(self, name: str) -> AbstractContextManager[None]:
        """A context around the host side of a phase; names become `specbench:<name>`."""
        ...


class NullRanges:
    """No profiler: one shared empty context, so that a range costs an attribute look-up."""

    def __init__(self) -> None:
        self._context = contextlib.nullcontext()

    def range(self, name: str) -> AbstractContextManager[None]:
        return self._context


def ranges_named(name: str) -> Ranges:
    """`off` or `nvtx`, as the command line spells them."""
    assert name in RANGE_KINDS, f"ranges: {name!r}"
    return TraceRanges() if name == "nvtx" else NullRanges()


class TraceRanges:
    """NVTX ranges for nsys and `record_function` for the torch profiler, in the same places with the same names."""

    def __init__(self) -> None:
        import nvtx
        from torch.profiler import record_function

        self._annotate = nvtx.annotate
        self._record = record_function

    @contextlib.contextmanager
    def range(self, name: str):
        label = f"specbench:{name}"
        with self._annotate(label, domain="specbench"), self._record(label):
            yield
