"""``asset.json`` of a finished asset in the cache: what it is, where it came from, and its seal."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from specbench.workloads.assets.cache import AssetError, asset_dir, atomic_file
from specbench.workloads.assets.seal import Seal
from specbench.workloads.guarded import read_bytes


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Written last: an asset directory without it does not count. `mtime_ns`: of the file when it was last hashed; 0 in
    manifests from before there were seals."""

    name: str
    file: str
    source: str
    sha256: str
    size_bytes: int
    mtime_ns: int = 0

    @property
    def path(self) -> Path:
        return asset_dir(self.name) / self.file

    @property
    def is_whole(self) -> bool:
        """Whether the file exists in its full length: an interrupted fetch is repeated."""
        return self.path.is_file() and self.path.stat().st_size == self.size_bytes

    def check(self) -> None:
        """AssetError for a file that was altered since it was fetched."""
        seal = Seal(sha256=self.sha256, size_bytes=self.size_bytes, mtime_ns=self.mtime_ns)
        now = seal.again(self.path, f"delete {self.path.parent} and fetch {self.name} again")
        if now != seal:
            with suppress(OSError):  # a cache that cannot be written costs time only
                write_manifest(msgspec.structs.replace(self, mtime_ns=now.mtime_ns))


def read_manifest(name: str) -> Manifest | None:
    """The manifest of a complete asset in the cache, whose file is not hashed here, or None."""
    path = asset_dir(name) / "asset.json"
    if not path.is_file():
        return None
    mend = f"delete {path.parent} and fetch {name} again"
    try:
        manifest = msgspec.json.decode(read_bytes(path), type=Manifest)
    except (ValueError, RecursionError) as error:
        raise AssetError(f"{path} is damaged ({error}); {mend}") from error
    if manifest.name != name or not manifest.file or manifest.file != Path(manifest.file).name:
        raise AssetError(f"{path}: {manifest.file!r} of {manifest.name!r} is not a file of this folder; {mend}")
    return manifest if manifest.is_whole else None


def write_manifest(manifest: Manifest) -> None:
    with atomic_file(asset_dir(manifest.name) / "asset.json") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
