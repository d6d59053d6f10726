"""Children that were started ahead of their turn, so that several engines start at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from specbench.harness.engines.child.process import ChildProcess

Started = AbstractContextManager[ChildProcess]


class BegunChildren:
    """Those that nobody has waited for yet, by the label of their arm. A context starts its child when it is entered
    and ends it at its end."""

    def __init__(self) -> None:
        self._begun: dict[str, tuple[Started, ChildProcess]] = {}

    def begin(self, label: str, started: Started) -> None:
        """RuntimeError for a command that cannot be run."""
        self._begun[label] = started, started.__enter__()

    @contextmanager
    def taken(self, label: str, otherwise: Started) -> Iterator[ChildProcess]:
        """The child of that arm, which ends here; the one that `otherwise` starts where none was begun."""
        with ExitStack() as held:
            context, child = self._begun.pop(label, (None, None))
            if context is None or child is None:
                child = held.enter_context(otherwise)
            else:
                held.push(context)
            yield child

    def close(self) -> None:
        """Ends those that nobody took."""
        with ExitStack() as held:
            for context, _ in self._begun.values():
                held.push(context)
            self._begun.clear()
