"""The table: who reads what others wrote, a few valid inputs, and how inputs of that form are changed.

A target's `prepare` puts what the reader needs beside the input into a folder, once. A try writes the input there and
reads it: it may be accepted, or refused with ValueError, or with an OSError that has a number, which the command line
turns into one line. Everything else is Broken, as are writes outside the folder, processes and connections.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fuzz.contained import Watch, in_time
from fuzz.mutate import Mutate


@dataclass(frozen=True, kw_only=True)
class Reader:
    """`file`: where the input is put before `read` is called. `seeds`: valid inputs. `refused`: first inputs that are
    not."""

    file: Path
    seeds: Sequence[bytes]
    read: Callable[[], object]
    refused: Sequence[bytes] = ()


@dataclass(frozen=True, kw_only=True)
class Target:
    """`starts`: the reader may start processes. `tries`: of each test run; fewer where one takes long."""

    prepare: Callable[[Path], Reader]
    mutate: Mutate
    starts: bool = False
    tries: int = 8


class Trial:
    """A target whose folder is prepared. Its valid inputs are read at once: they must be accepted."""

    def __init__(self, target: Target, folder: Path, watch: Watch):
        self.target, self._folder, self._watch = target, folder, watch
        self._reader = target.prepare(folder)
        self.seeds = (*self._reader.seeds, *self._reader.refused)
        for seed in self._reader.seeds:
            self._reader.file.write_bytes(seed)
            self._reader.read()

    def __call__(self, data: bytes) -> bool:
        """Whether the input was accepted. Raises what no input may raise, and Broken and Hang."""
        self._reader.file.write_bytes(data)
        with self._watch.within(self._folder, self.target.starts), in_time():
            try:
                self._reader.read()
            except ValueError:
                return False
            except OSError as error:
                if error.errno is None:
                    raise
                return False
        return True


def all_targets() -> Mapping[str, Target]:
    """By name, in order."""
    from fuzz.model_targets import MODELS
    from fuzz.record_targets import RECORDS
    from fuzz.text_targets import TEXTS

    return dict(sorted({**TEXTS, **MODELS, **RECORDS}.items()))


def temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="specbench-fuzz-")
