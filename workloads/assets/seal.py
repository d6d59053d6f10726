"""Seals of cached files, which are hashed once and then recognised by size and modification time.

A file whose size or time no longer match its seal (altered, or copied with the cache) is hashed again: with the same
bytes it gets a new seal, with others it is refused with its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from specbench.workloads.assets.cache import AssetError, atomic_file, read_sha256
from specbench.workloads.guarded import read_bytes


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """State of one file when its sha256 was last computed."""

    sha256: str
    size_bytes: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path, sha256: str = "") -> Seal:
        """`sha256`: if already known."""
        status = path.stat()
        return cls(sha256=sha256 or read_sha256(path), size_bytes=status.st_size, mtime_ns=status.st_mtime_ns)

    def again(self, path: Path, mend: str) -> Seal:
        """A new seal of the same bytes. AssetError, with `mend` (what to do), if the file has other bytes or is
        missing."""
        if not path.is_file():
            raise AssetError(f"{path} is missing; {mend}")
        status = path.stat()
        if (status.st_size, status.st_mtime_ns) == (self.size_bytes, self.mtime_ns):
            return self
        now = Seal.of(path)
        if now.sha256 != self.sha256:
            raise AssetError(f"{path} was altered: its sha256 is {now.sha256}, it was {self.sha256}; {mend}")
        return now


def write_seals(file: Path, paths: Mapping[str, Path]) -> None:
    """Seals the files, by name, in `file`."""
    _write(file, {name: Seal.of(path) for name, path in paths.items()})


def check_seals(file: Path, folder: Path, mend: str) -> None:
    """AssetError naming the first of the sealed files in `folder` that was altered."""
    try:
        seals = msgspec.json.decode(read_bytes(file), type=dict[str, Seal])
    except (ValueError, RecursionError) as error:
        raise AssetError(f"{file} is damaged ({error}); {mend}") from error
    now = {name: seal.again(folder / Path(name).name, mend) for name, seal in seals.items()}
    if now != seals:
        with suppress(OSError):  # a cache that cannot be written costs time only
            _write(file, now)


def _write(file: Path, seals: Mapping[str, Seal]) -> None:
    with atomic_file(file) as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(seals)) + b"\n")
