"""Resolves a user's model name to a local Hugging Face directory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from specbench.workloads.assets.cache import AssetError, Progress, cache_root
from specbench.workloads.assets.gguf import CONVERTER_VERSION, convert_gguf
from specbench.workloads.assets.hub import Hub
from specbench.workloads.assets.resolve import ResolvedAsset, resolve


def resolve_model(
    name_or_path: str | Path, *, progress: Progress | None = None, hub: Hub | None = None
) -> ResolvedAsset:
    """A checkpoint ready to load, for an asset name, a hub name, a directory or a ``.gguf`` file.

    ``sha256`` is that of the original bytes (the GGUF, or the directory's files). GGUF is converted once, into
    ``<cache>/models/``; a second call is instant. Raises AssetError or ValueError.
    """
    asset = resolve(name_or_path, progress=progress, hub=hub)
    if asset.path.is_dir():
        return asset
    if asset.path.suffix != ".gguf":
        raise AssetError(f"model {name_or_path} is a file; allowed: a .gguf file, a Hugging Face directory, or a name")
    stem = asset.name.removesuffix(".gguf")
    folder = cache_root() / "models" / f"{stem}-{asset.sha256[:12]}-v{CONVERTER_VERSION}"
    return replace(asset, path=convert_gguf(asset.path, folder))
