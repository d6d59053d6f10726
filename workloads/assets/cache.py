"""Trusted files on disk: atomic writes, hashes, free space, and the layout of the cache.

Layout below :func:`cache_root`: ``assets/<name>/`` one finished asset with its ``asset.json``; ``parts/<name>/`` wheels
of an unfinished one; ``models/`` converted checkpoints; ``derived/`` compact forms of data sets; ``hashes/`` hashes of
large files, so that they are read once, and seals of ``derived/``.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

Progress = Callable[[str, int, int], None]  # (label, bytes done, bytes in all)

CHUNK_BYTES = 1 << 20
MEMO_FROM_BYTES = 64 << 20  # smaller files are hashed again each time
SPARE_BYTES = 64 << 20  # left free on the disk beyond what a download needs


_SHA256 = re.compile(r"[0-9a-f]{64}")


class AssetError(ValueError):
    """An asset could not be obtained. The message is one line: what was tried, and what is allowed or what to do."""


def cache_root() -> Path:
    """``$SPECBENCH_CACHE``, else ``~/.cache/specbench``."""
    return Path(os.environ.get("SPECBENCH_CACHE") or Path.home() / ".cache" / "specbench").expanduser()


def require_free_disk(directory: Path, needed_bytes: int, what: str) -> None:
    """Raise AssetError unless the disk under ``directory`` can take ``needed_bytes`` more."""
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    free_bytes = shutil.disk_usage(existing).free
    if free_bytes < needed_bytes + SPARE_BYTES:
        raise AssetError(
            f"no free disk for {what}: needs {(needed_bytes + SPARE_BYTES) / 1e6:,.0f} MB, {existing} has "
            f"{free_bytes / 1e6:,.0f} MB; free some or set SPECBENCH_CACHE to a directory on a larger disk"
        )


@contextmanager
def atomic_file(target: Path) -> Iterator[IO[bytes]]:
    """Write ``target`` whole or not at all: temporary name beside it, fsync, rename."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, in hex. A large file is read once per (path, size, modification time). AssetError for a
    file in the hub's cache that was changed after its download."""
    real = path.resolve()
    status = real.stat()
    if status.st_size < MEMO_FROM_BYTES:
        found = read_sha256(real)
    else:
        key = hashlib.sha256(f"{real}|{status.st_size}|{status.st_mtime_ns}".encode()).hexdigest()
        memo = cache_root() / "hashes" / key
        if not (memo.is_file() and _SHA256.fullmatch(memo.read_text(errors="replace"))):
            with atomic_file(memo) as file:
                file.write(read_sha256(real).encode())
        found = memo.read_text()
    # The hub's cache names large files by their sha256.
    if real.parent.name == "blobs" and _SHA256.fullmatch(real.name) and real.name != found:
        raise AssetError(
            f"{path} was altered: its sha256 is {found}, it was {real.name}; delete {real}, fetch it again"
        )
    return found


def read_sha256(path: Path) -> str:
    """sha256 of a file's bytes, in hex, which are all read each time."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def directory_sha256(directory: Path) -> str:
    """One hash for a model directory: names and hashes of its top-level files, in order of name."""
    digest = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            digest.update(f"{path.name} {file_sha256(path)}\n".encode())
    return digest.hexdigest()


def asset_dir(name: str) -> Path:
    return cache_root() / "assets" / name
