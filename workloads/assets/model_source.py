"""From what a user calls a model to a Hugging Face directory on this disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specbench.workloads.assets.cache import Progress, cache_root
from specbench.workloads.assets.gguf import CONVERTER_VERSION, convert_gguf
from specbench.workloads.assets.resolve import AssetError, Hub, resolve


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSource:
    """A checkpoint ready to load. ``sha256`` is that of the original bytes (the GGUF, or the directory's files)."""

    name: str
    path: Path
    source: str
    sha256: str


def resolve_model(name_or_path: str | Path, *, progress: Progress | None = None, hub: Hub | None = None) -> ModelSource:
    """A Hugging Face directory for an asset name, a hub name, a directory or a ``.gguf`` file.

    GGUF is converted once, into ``<cache>/models/``; a second call is instant. Raises AssetError or ValueError.
    """
    asset = resolve(name_or_path, progress=progress, hub=hub)
    path = asset.path
    if path.is_file():
        if path.suffix != ".gguf":
            raise AssetError(
                f"model {name_or_path} is a file; allowed: a .gguf file, a Hugging Face directory, or a name"
            )
        stem = asset.name.removesuffix(".gguf")
        path = convert_gguf(path, cache_root() / "models" / f"{stem}-{asset.sha256[:12]}-v{CONVERTER_VERSION}")
    return ModelSource(name=asset.name, path=path, source=asset.source, sha256=asset.sha256)
